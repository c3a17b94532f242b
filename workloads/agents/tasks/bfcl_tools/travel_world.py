"""What the travel agency knows: airports, fares and rates.

Fares of four routes, the rates of EUR, GBP and RMB and the order of the airports are those that BFCL's tasks
and their ground truths go by. Everything else is made up here.
"""

from __future__ import annotations

from zlib import crc32

AIRPORTS = {
    "Rivermist": "RMS",
    "Stonebrook": "SBK",
    "Maplecrest": "MPC",
    "Silverpine": "SVP",
    "Shadowridge": "SHD",
    "London": "LHR",
    "Paris": "CDG",
    "Sunset Valley": "SSV",
    "Oakendale": "OKD",
    "Willowbend": "WLB",
    "Crescent Hollow": "CRH",
    "Autumnville": "AUV",
    "Pinehaven": "PHV",
    "Greenfield": "GFD",
    "San Francisco": "SFO",
    "Los Angeles": "LAX",
    "New York": "JFK",
    "Chicago": "ORD",
    "Beijing": "PEK",
    "Hong Kong": "HKG",
    "Rome": "CIA",
    "Tokyo": "HND",
    "Boston": "BOS",
}
CLASSES = {"economy": 1, "business": 2, "first": 5}
"""Times the fare of the cheapest."""
FARES = {("LAX", "SFO"): 200.0, ("JFK", "LAX"): 1200.0, ("CIA", "SFO"): 1400.0, ("JFK", "RMS"): 420.0}
"""USD, economy, by the two codes in order."""
PER_DOLLAR = {
    "USD": 1.0,
    "RMB": 7.0,
    "EUR": 0.8,
    "JPY": 110.0,
    "GBP": 0.7,
    "CAD": 1.3,
    "AUD": 1.4,
    "INR": 70.0,
    "RUB": 75.0,
    "BRL": 5.5,
    "MXN": 20.0,
}


def fare(travel_from: str, travel_to: str, travel_class: str) -> float:
    """USD for a seat; the same both ways and on all days. Raises KeyError for a class that is none."""
    route = (min(travel_from, travel_to), max(travel_from, travel_to))
    made_up = 100.0 + 20.0 * (crc32("-".join(route).encode()) % 40)
    return FARES.get(route, made_up) * CLASSES[travel_class]
