"""A car (BFCL's VehicleControlAPI).

Numbers that ground truths go by: 50 gallons in the tank, 20 miles to the gallon, the distances below that
have a task beside them. The others are made up here.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools

TANK = 50.0
MILES_PER_GALLON = 20.0
LITERS_PER_GALLON = 3.78541
GALLONS_PER_LITER = 0.264172
FULL_FORCE = 1000.0
"""Newtons on the pedal when it is fully pressed."""
WEIGHT = 2000.0 * 9.81
"""Newtons."""
HEALTHY = (32.0, 35.0)
"""psi: the mean of the four tires, as task 54 defines it for each."""
OUTSIDE = 33.0
"""Degrees Celsius: hot, as task 91 says."""
SHOP = "456 Oakwood Avenue, Rivermist, 83214"
DOORS = ("driver", "passenger", "rear_left", "rear_right")
ZIPCODES = {
    "Rivermist": "83214",
    "Stonebrook": "74532",
    "San Francisco": "94016",
    "Silverpine": "62947",
    "Oakendale": "47329",
    "Crescent Hollow": "69238",
    "Autumnville": "51479",
    "Maplecrest": "70142",
    "Shadowridge": "58213",
    "Sunset Valley": "66201",
    "Willowbend": "42817",
    "Pinehaven": "35904",
    "Greenfield": "31075",
}
KILOMETERS = {
    frozenset(("83214", "94016")): 980.0,  # tasks 61, 95
    frozenset(("83214", "74532")): 750.0,  # tasks 62, 71
    frozenset(("94016", "62947")): 780.0,  # task 67
    frozenset(("69238", "51479")): 630.0,  # task 57
    frozenset(("94016", "74532")): 880.0,
    frozenset(("62947", "47329")): 410.0,
    frozenset(("83214", "62947")): 540.0,
    frozenset(("47329", "69238")): 290.0,
}
SHOWN = {
    "fuel": ("fuelLevel",),
    "battery": ("batteryVoltage",),
    "doors": ("doorStatus",),
    "climate": ("acTemperature", "fanSpeed", "acMode", "humidityLevel"),
    "headlights": ("headLightStatus",),
    "parkingBrake": ("parkingBrakeStatus", "parkingBrakeForce", "slopeAngle"),
    "brakePedal": ("brakePedalStatus", "brakePedalForce"),
    "engine": ("engineState",),
}


class VehicleControlAPI(Tools):
    """One car. Fuel in gallons, speed in km/h, distances to go in miles."""

    DEFAULTS: ClassVar = {
        "fuelLevel": 0.0,
        "batteryVoltage": 12.6,
        "engineState": "stopped",
        "doorStatus": dict.fromkeys(DOORS, "unlocked"),
        "acTemperature": 25.0,
        "fanSpeed": 50,
        "acMode": "auto",
        "humidityLevel": 50.0,
        "headLightStatus": "off",
        "parkingBrakeStatus": "released",
        "parkingBrakeForce": 0.0,
        "slopeAngle": 0.0,
        "brakePedalStatus": "released",
        "brakePedalForce": 0.0,
        "distanceToNextVehicle": 50.0,
        "cruiseStatus": "inactive",
        "currentSpeed": 0.0,
        "destination": "None",
        "frontLeftTirePressure": 32.0,
        "frontRightTirePressure": 32.0,
        "rearLeftTirePressure": 30.0,
        "rearRightTirePressure": 30.0,
    }
    fuelLevel: float
    batteryVoltage: float
    engineState: str
    doorStatus: dict[str, str]
    acTemperature: float
    fanSpeed: int
    acMode: str
    humidityLevel: float
    headLightStatus: str
    parkingBrakeStatus: str
    parkingBrakeForce: float
    slopeAngle: float
    brakePedalStatus: str
    brakePedalForce: float
    distanceToNextVehicle: float
    cruiseStatus: str
    currentSpeed: float
    destination: str

    def startEngine(self, ignitionMode: str) -> Result:
        """Start with all doors locked, the brake pedal down and fuel in the tank; or stop."""
        _one_of("ignitionMode", ignitionMode, ("START", "STOP"))
        if ignitionMode == "START":
            self._may_start()
        self.engineState = "running" if ignitionMode == "START" else "stopped"
        return self._shown("engineState", "fuelLevel", "batteryVoltage")

    def fillFuelTank(self, fuelAmount: float) -> Result:
        """More gallons."""
        if fuelAmount <= 0 or self.fuelLevel + fuelAmount > TANK:
            raise ToolError(f"fuelAmount: above 0, and no more than {TANK - self.fuelLevel:g} gallons fit in")
        self.fuelLevel += fuelAmount
        return self._shown("fuelLevel")

    def lockDoors(self, unlock: bool, door: list[str]) -> Result:
        """Lock or unlock doors."""
        for name in door:
            _one_of("door", name, DOORS)
        status = "unlocked" if unlock else "locked"
        self.doorStatus.update(dict.fromkeys(door, status))
        still = sum(status == "unlocked" for status in self.doorStatus.values())
        return {"lockStatus": status, "remainingUnlockedDoors": still}

    def adjustClimateControl(
        self, temperature: float, unit: str = "celsius", fanSpeed: int = 50, mode: str = "auto"
    ) -> Result:
        """Temperature, fan and mode of the air conditioning."""
        _one_of("unit", unit, ("celsius", "fahrenheit"))
        _one_of("mode", mode, ("auto", "cool", "heat", "defrost"))
        if not 0 <= fanSpeed <= 100:
            raise ToolError(f"fanSpeed: 0 to 100, not {fanSpeed}")
        self.acTemperature = temperature if unit == "celsius" else (temperature - 32) * 5 / 9
        self.fanSpeed, self.acMode = fanSpeed, mode
        shown = {"currentTemperature": self.acTemperature, "climateMode": mode}
        return {**shown, "humidityLevel": self.humidityLevel}

    def setHeadlights(self, mode: str) -> Result:
        """On, off, or by themselves (on)."""
        _one_of("mode", mode, ("on", "off", "auto"))
        self.headLightStatus = "off" if mode == "off" else "on"
        return {"headlightStatus": self.headLightStatus}

    def activateParkingBrake(self, mode: str) -> Result:
        """Engage it, with the force that the slope wants, or release it."""
        _one_of("mode", mode, ("engage", "release"))
        engaged = mode == "engage"
        self.parkingBrakeStatus = "engaged" if engaged else "released"
        self.parkingBrakeForce = (
            round(WEIGHT * math.sin(math.radians(self.slopeAngle)), 2) if engaged else 0.0
        )
        return {
            "parkingBrakeStatus": self.parkingBrakeStatus,
            "_parkingBrakeForce": self.parkingBrakeForce,
            "_slopeAngle": self.slopeAngle,
        }

    def pressBrakePedal(self, pedalPosition: float) -> Result:
        """Press and hold."""
        if not 0 <= pedalPosition <= 1:
            raise ToolError(f"pedalPosition: 0 to 1, not {pedalPosition}")
        self.brakePedalStatus = "pressed" if pedalPosition else "released"
        self.brakePedalForce = FULL_FORCE * pedalPosition
        return self._shown("brakePedalStatus", "brakePedalForce")

    def releaseBrakePedal(self) -> Result:
        """Let go."""
        return self.pressBrakePedal(0.0)

    def setCruiseControl(self, speed: float, activate: bool, distanceToNextVehicle: float) -> Result:
        """Hold a speed, with the engine running."""
        if activate and self.engineState != "running":
            raise ToolError("the engine is not running: startEngine first")
        if activate and (not 0 <= speed <= 120 or speed % 5):
            raise ToolError(f"speed: 0 to 120 in steps of 5, not {speed:g}")
        self.cruiseStatus = "active" if activate else "inactive"
        self.currentSpeed = speed if activate else 0.0
        self.distanceToNextVehicle = distanceToNextVehicle
        return self._shown("cruiseStatus", "currentSpeed", "distanceToNextVehicle")

    def get_current_speed(self) -> Result:
        """The speed: that of the cruise control, or none."""
        return self._shown("currentSpeed")

    def set_navigation(self, destination: str) -> Result:
        """Where to go."""
        self.destination = destination
        return {"status": f"navigating to {destination}"}

    def displayCarStatus(self, option: str) -> Result:
        """What the car shows of one of its parts."""
        _one_of("option", option, tuple(SHOWN))
        return {"status": self._shown(*SHOWN[option])}

    def display_log(self, messages: list[str]) -> Result:
        """Show lines."""
        return {"log": list(messages)}

    def check_tire_pressure(self) -> Result:
        """psi of each tire, and whether their mean is healthy."""
        names = [name for name in self.DEFAULTS if name.endswith("TirePressure")]
        shown = self._shown(*names)
        healthy = HEALTHY[0] <= sum(shown.values()) / len(shown) <= HEALTHY[1]
        return {"tirePressure": {**shown, "healthy_tire_pressure": healthy, "car_info": {}}}

    def find_nearest_tire_shop(self) -> Result:
        """Where it is."""
        return {"shopLocation": SHOP}

    def estimate_drive_feasibility_by_mileage(self, distance: float) -> Result:
        """Whether the fuel lasts so many miles."""
        return {"canDrive": self.fuelLevel * MILES_PER_GALLON >= distance}

    def get_zipcode_based_on_city(self, city: str) -> Result:
        """A city's zipcode."""
        if city not in ZIPCODES:
            raise ToolError(f"no zipcode of '{city}' is known; cities: {', '.join(ZIPCODES)}")
        return {"zipcode": ZIPCODES[city]}

    def estimate_distance(self, cityA: str, cityB: str) -> Result:
        """km between two zipcodes."""
        found = 0.0 if cityA == cityB else KILOMETERS.get(frozenset((cityA, cityB)))
        if found is None:
            raise ToolError(f"no distance from '{cityA}' to '{cityB}' is known; both must be zipcodes")
        return {"distance": found}

    def gallon_to_liter(self, gallon: float) -> Result:
        """Liters."""
        return {"liter": round(gallon * LITERS_PER_GALLON, 2)}

    def liter_to_gallon(self, liter: float) -> Result:
        """Gallons."""
        return {"gallon": round(liter * GALLONS_PER_LITER, 2)}

    def get_outside_temperature_from_google(self) -> Result:
        """Degrees Celsius."""
        return {"outsideTemperature": OUTSIDE}

    def get_outside_temperature_from_weather_com(self) -> Result:
        """Degrees Celsius."""
        return {"outsideTemperature": OUTSIDE}

    def _may_start(self) -> None:
        if unlocked := [door for door, status in self.doorStatus.items() if status == "unlocked"]:
            raise ToolError(f"doors are unlocked: {', '.join(unlocked)}")
        if self.brakePedalStatus != "pressed":
            raise ToolError("the brake pedal is not pressed")
        if self.fuelLevel <= 0:
            raise ToolError("the tank is empty")

    def _shown(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ToolError(f"{name}: {', '.join(allowed)}, not {value!r}")
