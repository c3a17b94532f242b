"""A broker's account (BFCL's TradingBot). The clock stands still; orders are not carried out meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools, with_numbers

NOW = "10:30 AM"
TODAY = "2024-11-15"
SECTORS = {
    # The last of Technology is the one that task 112 asks about.
    "Technology": ("AAPL", "GOOG", "MSFT", "NVDA"),
    "Automobile": ("TSLA", "F", "GM"),
    "Healthcare": ("JNJ", "PFE", "MRNA"),
    "Energy": ("XOM", "CVX", "BP"),
}
COMPANIES = {
    "Apple": "AAPL",
    "Google": "GOOG",
    "Tesla": "TSLA",
    "Microsoft": "MSFT",
    "Nvidia": "NVDA",
    "Amazon": "AMZN",
    "Alphabet": "ALPH",
    "Zeta Corp": "ZETA",
    "Omega Industries": "OMEG",
    "Quasar Ltd.": "QUAS",
    "Neptune Systems": "NEPT",
    "Synex Solutions": "SYNX",
}


def _order(order_id: int, symbol: str, price: float, amount: int, status: str) -> dict[str, Any]:
    return {
        "id": order_id,
        "order_type": "Buy",
        "symbol": symbol,
        "price": price,
        "amount": amount,
        "status": status,
    }


class TradingBot(Tools):
    """``orders`` by number; ``stocks`` by symbol."""

    DEFAULTS: ClassVar = {
        "orders": {
            # Tasks without orders of their own ask for 12446, which is still to be carried out.
            "12345": _order(12345, "AAPL", 210.65, 10, "Completed"),
            "12446": _order(12446, "GOOG", 2840.56, 5, "Pending"),
        },
        "account_info": {"account_id": 12345, "balance": 10000.0, "binding_card": 1974202140965533},
        "authenticated": False,
        "market_status": "Closed",
        "order_counter": 12446,
        "stocks": {},
        "watch_list": ["NVDA"],
        "transaction_history": [],
    }
    orders: dict[Any, Any]
    account_info: dict[str, Any]
    authenticated: bool
    market_status: str
    order_counter: int
    stocks: dict[str, dict[str, float]]
    watch_list: list[str]
    transaction_history: list[dict[str, Any]]

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.orders = with_numbers(self.orders)

    def get_current_time(self) -> Result:
        """The time, which does not go on."""
        return {"current_time": NOW}

    def trading_login(self, username: str, password: str) -> Result:
        """Log in; there is no list of users, so any name and password that are not empty will do."""
        if not username or not password:
            raise ToolError("username and password must not be empty")
        if self.authenticated:
            return {"status": "Already logged in"}
        self.authenticated = True
        return {"status": "Logged in successfully"}

    def trading_logout(self) -> Result:
        """Log out."""
        was, self.authenticated = self.authenticated, False
        return {"status": "Logged out successfully" if was else "No user is logged in"}

    def trading_get_login_status(self) -> Result:
        """Whether the user is logged in."""
        return {"status": self.authenticated}

    def get_symbol_by_name(self, name: str) -> Result:
        """The symbol of a company."""
        return {"symbol": COMPANIES.get(name, "Stock not found")}

    def get_available_stocks(self, sector: str) -> Result:
        """Symbols of a sector."""
        if sector not in SECTORS:
            raise ToolError(f"no sector '{sector}'; there are {', '.join(SECTORS)}")
        return {"stock_list": list(SECTORS[sector])}

    def get_stock_info(self, symbol: str) -> Result:
        """Price, volume and averages of a stock."""
        return dict(self._stock(symbol))

    def filter_stocks_by_price(self, stocks: list[str], min_price: float, max_price: float) -> Result:
        """Those of the stocks whose price lies between two."""
        kept = [symbol for symbol in stocks if min_price <= self._stock(symbol)["price"] <= max_price]
        return {"filtered_stocks": kept}

    def notify_price_change(self, stocks: list[str], threshold: float) -> Result:
        """Which of the stocks changed by at least so many percent."""
        moved = [symbol for symbol in stocks if abs(self._stock(symbol)["percent_change"]) >= threshold]
        told = f"Significant change: {', '.join(moved)}" if moved else "No significant change"
        return {"notification": told}

    def get_watchlist(self) -> Result:
        """What the user watches."""
        return {"watchlist": list(self.watch_list)}

    def add_to_watchlist(self, stock: str) -> Result:
        """Watch a stock."""
        self._stock(stock)
        if stock not in self.watch_list:
            self.watch_list.append(stock)
        return self.get_watchlist()

    def remove_stock_from_watchlist(self, symbol: str) -> Result:
        """Watch a stock no more."""
        if symbol not in self.watch_list:
            raise ToolError(f"'{symbol}' is not on the watchlist")
        self.watch_list.remove(symbol)
        return {"status": f"{symbol} was removed from the watchlist"}

    def place_order(self, order_type: str, symbol: str, price: float, amount: int) -> Result:
        """An order, of which a purchase must be covered by the balance; it is not carried out yet."""
        self._user()
        self._stock(symbol)
        if order_type.capitalize() not in ("Buy", "Sell"):
            raise ToolError(f"order_type: Buy or Sell, not {order_type!r}")
        if price <= 0 or amount <= 0:
            raise ToolError("price and amount must be above zero")
        if order_type.capitalize() == "Buy" and price * amount > self.account_info["balance"]:
            raise ToolError(f"{price * amount:.2f} is more than the balance")
        order = _order(self.order_counter, symbol, price, amount, "Open")
        order["order_type"] = order_type.capitalize()
        self.orders[self.order_counter] = order
        self.order_counter += 1
        said = {name: order[name] for name in ("order_type", "status", "price", "amount")}
        return {"order_id": order["id"], **said}

    def get_order_details(self, order_id: int) -> Result:
        """One order."""
        self._user()
        return dict(self._order(order_id))

    def get_order_history(self) -> Result:
        """Numbers of all orders."""
        self._user()
        return {"order_history": [number for number in self.orders if isinstance(number, int)]}

    def cancel_order(self, order_id: int) -> Result:
        """Cancel an order that is not carried out yet."""
        self._user()
        order = self._order(order_id)
        if order["status"] in ("Completed", "Cancelled"):
            raise ToolError(f"order {order_id} is {order['status'].lower()} already")
        order["status"] = "Cancelled"
        return {"order_id": order_id, "status": "Cancelled"}

    def get_account_info(self) -> Result:
        """Number, balance and card of the account."""
        self._user()
        return dict(self.account_info)

    def fund_account(self, amount: float) -> Result:
        """Pay in."""
        return self._pay("deposit", amount)

    def withdraw_funds(self, amount: float) -> Result:
        """Take out."""
        if amount > self.account_info["balance"]:
            raise ToolError(f"{amount:.2f} is more than the balance")
        return self._pay("withdrawal", amount)

    def get_transaction_history(self, start_date: str | None = None, end_date: str | None = None) -> Result:
        """Transactions from one day to another, both included (YYYY-MM-DD)."""
        self._user()
        begin, end = start_date or "", end_date or "9999"
        kept = [dict(t) for t in self.transaction_history if begin <= t["timestamp"][:10] <= end]
        return {"transaction_history": kept}

    def _pay(self, kind: str, amount: float) -> Result:
        self._user()
        if amount <= 0:
            raise ToolError("amount must be above zero")
        self.account_info["balance"] += amount if kind == "deposit" else -amount
        self.transaction_history.append({"type": kind, "amount": amount, "timestamp": f"{TODAY} 10:30:00"})
        return {"status": f"{kind} successful", "new_balance": self.account_info["balance"]}

    def _user(self) -> None:
        if not self.authenticated:
            raise ToolError("the user is not logged in: trading_login first")

    def _stock(self, symbol: str) -> dict[str, float]:
        if symbol not in self.stocks:
            raise ToolError(f"there is no stock '{symbol}'")
        return self.stocks[symbol]

    def _order(self, order_id: int) -> dict[str, Any]:
        if order_id not in self.orders:
            raise ToolError(f"there is no order {order_id}")
        order: dict[str, Any] = self.orders[order_id]
        return order
