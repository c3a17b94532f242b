"""A travel agency (BFCL's TravelAPI): flights, cards, insurance.

Its numbers of bookings, cards and tokens come from a seeded generator: ground truths have them as literals
(task 150 onwards), so it is BFCL's seed, and one draw per number in the order in which they are given out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date
from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools
from workloads.agents.tasks.bfcl_tools.travel_world import AIRPORTS, CLASSES, PER_DOLLAR, fare

SEED = 141053
TODAY = date(2024, 11, 15)
ADULT = 18


class TravelAPI(Tools):
    """``credit_card_list`` and ``booking_record`` by id. ``budget_limit`` (USD) is kept, not enforced."""

    DEFAULTS: ClassVar = {
        "credit_card_list": {},
        "booking_record": {},
        "access_token": None,
        "token_type": None,
        "token_expires_in": None,
        "token_scope": None,
        "user_first_name": None,
        "user_last_name": None,
        "budget_limit": None,
    }
    credit_card_list: dict[str, dict[str, Any]]
    booking_record: dict[str, dict[str, Any]]
    access_token: str | None
    token_type: str | None
    token_expires_in: int | None
    token_scope: str | None
    user_first_name: str | None
    user_last_name: str | None
    budget_limit: float | None

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._numbers = random.Random(SEED)

    def authenticate_travel(
        self,
        client_id: str,
        client_secret: str,
        refresh_token: str,
        grant_type: str,
        user_first_name: str,
        user_last_name: str,
    ) -> Result:
        """A new token for a user; any credentials that are not empty will do."""
        if not (client_id and client_secret and refresh_token):
            raise ToolError("client_id, client_secret and refresh_token must not be empty")
        if grant_type not in ("read_write", "read", "write"):
            raise ToolError(f"grant_type: read_write, read or write, not {grant_type!r}")
        self.access_token, self.token_type = self._number(6), "Bearer"
        self.token_expires_in, self.token_scope = 3600, grant_type
        self.user_first_name, self.user_last_name = user_first_name, user_last_name
        return {
            "expires_in": self.token_expires_in,
            "access_token": self.access_token,
            "token_type": self.token_type,
            "scope": grant_type,
        }

    def travel_get_login_status(self) -> Result:
        """Whether there is a token."""
        return {"status": self.access_token is not None}

    def list_all_airports(self) -> Result:
        """Codes of all airports."""
        return {"airports": list(AIRPORTS.values())}

    def get_nearest_airport_by_city(self, location: str) -> Result:
        """The airport of a city."""
        if location not in AIRPORTS:
            raise ToolError(f"no airport near '{location}'; cities: {', '.join(AIRPORTS)}")
        return {"nearest_airport": AIRPORTS[location]}

    def get_flight_cost(
        self, travel_from: str, travel_to: str, travel_date: str, travel_class: str
    ) -> Result:
        """Fares in USD."""
        return {"travel_cost_list": [_priced(travel_from, travel_to, travel_date, travel_class)]}

    def compute_exchange_rate(self, base_currency: str, target_currency: str, value: float) -> Result:
        """A sum in another currency, to the cent."""
        if unknown := [c for c in (base_currency, target_currency) if c not in PER_DOLLAR]:
            raise ToolError(f"no currency '{unknown[0]}'; there are {', '.join(PER_DOLLAR)}")
        exchanged = value / PER_DOLLAR[base_currency] * PER_DOLLAR[target_currency]
        return {"exchanged_value": round(exchanged, 2)}

    def set_budget_limit(self, access_token: str, budget_limit: float) -> Result:
        """Remember a limit in USD."""
        self._user(access_token)
        self.budget_limit = float(budget_limit)
        return {"budget_limit": self.budget_limit}

    def get_budget_fiscal_year(
        self, lastModifiedAfter: str | None = None, includeRemoved: str | None = None
    ) -> Result:
        """The fiscal year, whatever is asked of it."""
        asked = {"lastModifiedAfter": lastModifiedAfter, "includeRemoved": includeRemoved}
        return {"budget_fiscal_year": str(TODAY.year), **{k: v for k, v in asked.items() if v is not None}}

    def register_credit_card(
        self,
        access_token: str,
        card_number: str,
        expiration_date: str,
        cardholder_name: str,
        card_verification_number: int,
    ) -> Result:
        """A card, on which there is money to travel."""
        self._user(access_token)
        month, _, year = expiration_date.partition("/")
        if not (month.isdigit() and 1 <= int(month) <= 12 and year.isdigit() and len(year) == 4):
            raise ToolError(f"expiration_date: MM/YYYY, not {expiration_date!r}")
        card_id = self._number(12)
        self.credit_card_list[card_id] = {
            "card_number": card_number,
            "expiration_date": expiration_date,
            "cardholder_name": cardholder_name,
            "card_verification_number": card_verification_number,
            "balance": 10000.0,
        }
        return {"card_id": card_id}

    def get_all_credit_cards(self) -> Result:
        """All cards by id."""
        return {"credit_card_list": {card_id: dict(card) for card_id, card in self.credit_card_list.items()}}

    def get_credit_card_balance(self, access_token: str, card_id: str) -> Result:
        """What is on a card."""
        self._user(access_token)
        return {"card_balance": self._card(card_id)["balance"]}

    def book_flight(
        self,
        access_token: str,
        card_id: str,
        travel_date: str,
        travel_from: str,
        travel_to: str,
        travel_class: str,
    ) -> Result:
        """Book and pay."""
        self._user(access_token)
        cost = _priced(travel_from, travel_to, travel_date, travel_class)
        self._charge(card_id, cost)
        booking_id, transaction_id = self._number(7), self._number(8)
        self.booking_record[booking_id] = {
            "card_id": card_id,
            "travel_date": travel_date,
            "travel_from": travel_from,
            "travel_to": travel_to,
            "travel_class": travel_class,
            "travel_cost": cost,
            "transaction_id": transaction_id,
        }
        return {
            "booking_id": booking_id,
            "transaction_id": transaction_id,
            "booking_status": True,
            "booking_history": {},
        }

    def cancel_booking(self, access_token: str, booking_id: str) -> Result:
        """Give a flight back; the fare goes back to its card."""
        self._user(access_token)
        booking = self._booking(booking_id)
        card = self.credit_card_list.get(booking.get("card_id", ""))
        if card is not None:
            card["balance"] += booking["travel_cost"]
        del self.booking_record[booking_id]
        return {"cancel_status": True}

    def get_booking_history(self, access_token: str) -> Result:
        """All bookings by id."""
        self._user(access_token)
        return {"booking_history": {key: dict(booking) for key, booking in self.booking_record.items()}}

    def purchase_insurance(
        self, access_token: str, insurance_type: str, insurance_cost: float, booking_id: str, card_id: str
    ) -> Result:
        """Insure a booking."""
        self._user(access_token)
        booking = self._booking(booking_id)
        if insurance_cost < 0:
            raise ToolError("insurance_cost must not be below zero")
        self._charge(card_id, insurance_cost)
        insurance_id = self._number(9)
        booking["insurance"] = {"id": insurance_id, "type": insurance_type, "cost": insurance_cost}
        return {"insurance_id": insurance_id, "insurance_status": True}

    def retrieve_invoice(
        self, access_token: str, booking_id: str | None = None, insurance_id: str | None = None
    ) -> Result:
        """The invoice of a booking, which is found by its insurance, too."""
        self._user(access_token)
        if booking_id is None:
            insured = {str(b["insurance"]["id"]): k for k, b in self._insured().items()}
            if insurance_id not in insured:
                raise ToolError(f"there is no insurance '{insurance_id}'")
            booking_id = insured[insurance_id]
        return {"invoice": {"booking_id": booking_id, **self._booking(booking_id)}}

    def contact_customer_support(self, booking_id: str, message: str) -> Result:
        """Write to the agency."""
        self._booking(booking_id)
        if not message:
            raise ToolError("message must not be empty")
        told = f"Thank you. We have received your message on booking {booking_id} and will answer soon."
        return {"customer_support_message": told}

    def verify_traveler_information(
        self, first_name: str, last_name: str, date_of_birth: str, passport_number: str
    ) -> Result:
        """Whether these are an adult's data, under the user's name, with a passport."""
        age = (TODAY - _day("date_of_birth", date_of_birth)).days // 365.2425
        if (first_name, last_name) != (self.user_first_name, self.user_last_name):
            return _unverified("the name is not the user's")
        if age < ADULT:
            return _unverified(f"the traveler is under {ADULT}")
        if not passport_number.isalnum():
            return _unverified("a passport's number has letters and digits only")
        return {"verification_status": True}

    def _number(self, digits: int) -> str:
        return str(self._numbers.randint(10 ** (digits - 1), 10**digits - 1))

    def _user(self, access_token: str) -> None:
        if self.access_token is None or access_token != self.access_token:
            raise ToolError(f"the access token '{access_token}' is not valid: authenticate_travel first")

    def _card(self, card_id: str) -> dict[str, Any]:
        if card_id not in self.credit_card_list:
            raise ToolError(f"no card '{card_id}' is registered")
        return self.credit_card_list[card_id]

    def _charge(self, card_id: str, cost: float) -> None:
        card = self._card(card_id)
        if cost > card["balance"]:
            raise ToolError(f"{cost:.2f} is more than there is on card '{card_id}'")
        card["balance"] -= cost

    def _booking(self, booking_id: str) -> dict[str, Any]:
        if booking_id not in self.booking_record:
            raise ToolError(f"there is no booking '{booking_id}'")
        return self.booking_record[booking_id]

    def _insured(self) -> dict[str, dict[str, Any]]:
        record = self.booking_record.items()
        return {k: b for k, b in record if isinstance(b.get("insurance"), dict) and "id" in b["insurance"]}


def _priced(travel_from: str, travel_to: str, travel_date: str, travel_class: str) -> float:
    if unknown := [code for code in (travel_from, travel_to) if code not in AIRPORTS.values()]:
        raise ToolError(f"no airport '{unknown[0]}'; there are {', '.join(AIRPORTS.values())}")
    if travel_from == travel_to:
        raise ToolError("travel_from and travel_to are the same")
    if travel_class not in CLASSES:
        raise ToolError(f"travel_class: {', '.join(CLASSES)}, not {travel_class!r}")
    _day("travel_date", travel_date)
    return fare(travel_from, travel_to, travel_class)


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ToolError(f"{name}: YYYY-MM-DD, not {text!r}") from None


def _unverified(why: str) -> Result:
    return {"verification_status": False, "verification_failure": why}
