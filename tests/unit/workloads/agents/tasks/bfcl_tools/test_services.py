"""The broker, the travel agency and the car."""

import pytest

from workloads.agents.tasks.bfcl_tools.base import ToolError
from workloads.agents.tasks.bfcl_tools.trading import TradingBot
from workloads.agents.tasks.bfcl_tools.travel import TravelAPI
from workloads.agents.tasks.bfcl_tools.travel_world import fare
from workloads.agents.tasks.bfcl_tools.vehicle import VehicleControlAPI


@pytest.fixture
def bot():
    stock = {"price": 10.0, "percent_change": 0.5, "volume": 1.0}
    return TradingBot({"authenticated": True, "stocks": {"AAPL": stock}})


@pytest.fixture
def travel():
    card = {"balance": 3000.0}
    return TravelAPI({"access_token": "t", "credit_card_list": {"c": card}, "user_first_name": "Ada"})


@pytest.fixture
def car():
    return VehicleControlAPI({"fuelLevel": 5.0})


def test_orders(bot):
    order = bot.place_order("Buy", "AAPL", 10.0, 3)["order_id"]
    assert bot.get_order_details(order)["status"] == "Open"
    assert bot.cancel_order(order) == {"order_id": order, "status": "Cancelled"}
    assert bot.get_account_info()["balance"] == 10000.0, "orders are not carried out"
    for wrong in (
        lambda: bot.cancel_order(order),
        lambda: bot.cancel_order(12345),
        lambda: bot.place_order("Buy", "AAPL", 10.0, 2000),
        lambda: bot.place_order("Lend", "AAPL", 10.0, 1),
        lambda: bot.place_order("Buy", "NONE", 10.0, 1),
        lambda: bot.get_order_details(1),
    ):
        with pytest.raises(ToolError):
            wrong()


def test_money_and_watching(bot):
    assert bot.fund_account(500)["new_balance"] == 10500.0
    assert bot.withdraw_funds(100)["new_balance"] == 10400.0
    assert [t["type"] for t in bot.get_transaction_history()["transaction_history"]] == [
        "deposit",
        "withdrawal",
    ]
    assert bot.get_transaction_history(end_date="2020-01-01") == {"transaction_history": []}
    assert bot.add_to_watchlist("AAPL") == bot.add_to_watchlist("AAPL") == {"watchlist": ["NVDA", "AAPL"]}
    bot.remove_stock_from_watchlist("NVDA")
    assert bot.filter_stocks_by_price(["AAPL"], 11, 20) == {"filtered_stocks": []}
    assert bot.notify_price_change(["AAPL"], 0.4)["notification"].endswith("AAPL")
    bot.trading_logout()
    with pytest.raises(ToolError, match="trading_login first"):
        bot.get_account_info()


def test_a_flight_is_paid_and_paid_back(travel):
    booked = travel.book_flight("t", "c", "2026-12-01", "SFO", "LAX", "business")
    assert travel.get_credit_card_balance("t", "c") == {"card_balance": 2600.0}
    bought = travel.purchase_insurance("t", "full", 100.0, booked["booking_id"], "c")
    assert (
        travel.retrieve_invoice("t", insurance_id=bought["insurance_id"])["invoice"]["travel_cost"] == 400.0
    )
    travel.cancel_booking("t", booked["booking_id"])
    assert travel.get_credit_card_balance("t", "c") == {"card_balance": 2900.0}
    assert travel.get_booking_history("t") == {"booking_history": {}}


def test_numbers_are_those_of_the_ground_truths():
    assert TravelAPI({})._number(12) == "262919693687"  # task 178, 197
    api = TravelAPI({})
    assert api.authenticate_travel("i", "s", "r", "read", "A", "B")["access_token"] == "251675"  # task 161


@pytest.mark.parametrize(
    "arguments",
    [
        ("wrong", "c", "2026-12-01", "SFO", "LAX", "business"),
        ("t", "none", "2026-12-01", "SFO", "LAX", "business"),
        ("t", "c", "first of May", "SFO", "LAX", "business"),
        ("t", "c", "2026-12-01", "SFO", "XXX", "business"),
        ("t", "c", "2026-12-01", "SFO", "SFO", "business"),
        ("t", "c", "2026-12-01", "SFO", "LAX", "cargo"),
        ("t", "c", "2026-12-01", "JFK", "LAX", "first"),
    ],
)
def test_a_flight_that_is_refused_costs_nothing(travel, arguments):
    before = travel.state()
    with pytest.raises(ToolError):
        travel.book_flight(*arguments)
    assert travel.state() == before


def test_fares_go_both_ways():
    assert fare("RMS", "BOS", "economy") == fare("BOS", "RMS", "economy")
    assert fare("SFO", "LAX", "first") == 1000.0


def test_rates_and_travelers(travel):
    assert travel.compute_exchange_rate("RMB", "USD", 20000.0) == {"exchanged_value": 2857.14}
    travel.user_last_name = "L"
    assert travel.verify_traveler_information("Ada", "L", "1990-01-01", "P1") == {"verification_status": True}
    said = travel.verify_traveler_information("Ada", "L", "2020-01-01", "P1")
    assert "under 18" in said["verification_failure"]
    with pytest.raises(ToolError, match="YYYY-MM-DD"):
        travel.verify_traveler_information("Ada", "L", "1990", "P1")


def test_starting_wants_doors_pedal_and_fuel(car):
    for step in (
        lambda: car.lockDoors(False, ["driver", "passenger", "rear_left", "rear_right"]),
        lambda: car.pressBrakePedal(1.0),
    ):
        with pytest.raises(ToolError):
            car.startEngine("START")
        step()
    assert car.startEngine("START")["engineState"] == "running"
    assert car.setCruiseControl(65, True, 100.0)["currentSpeed"] == 65
    assert car.startEngine("STOP")["engineState"] == "stopped"
    empty = VehicleControlAPI({"doorStatus": {}})
    empty.pressBrakePedal(1.0)
    with pytest.raises(ToolError, match="tank is empty"):
        empty.startEngine("START")


def test_fuel_and_distances(car):
    assert car.estimate_drive_feasibility_by_mileage(101) == {"canDrive": False}
    assert car.fillFuelTank(45) == {"fuelLevel": 50.0}
    with pytest.raises(ToolError, match="no more than 0 gallons"):
        car.fillFuelTank(1)
    assert car.liter_to_gallon(166) == {"gallon": 43.85}
    assert car.estimate_distance("94016", "83214") == car.estimate_distance("83214", "94016")
    with pytest.raises(ToolError, match="must be zipcodes"):
        car.estimate_distance("Rivermist", "94016")


def test_the_rest_of_the_car(car):
    assert car.lockDoors(True, ["driver"])["remainingUnlockedDoors"] == 4
    assert car.adjustClimateControl(50, "fahrenheit")["currentTemperature"] == 10.0
    assert car.check_tire_pressure()["tirePressure"]["healthy_tire_pressure"] is False
    car.slopeAngle = 30.0
    assert car.activateParkingBrake("engage")["_parkingBrakeForce"] == 9810.0
    assert car.displayCarStatus("parkingBrake")["status"]["parkingBrakeStatus"] == "engaged"
    for wrong in (
        lambda: car.setHeadlights("dim"),
        lambda: car.pressBrakePedal(2),
        lambda: car.displayCarStatus("radio"),
        lambda: car.lockDoors(True, ["trunk"]),
        lambda: car.setCruiseControl(60, True, 1.0),
    ):
        with pytest.raises(ToolError):
            wrong()
