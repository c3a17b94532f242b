"""Support tickets (BFCL's TicketAPI)."""

from __future__ import annotations

from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools

Ticket = dict[str, Any]
EDITABLE = ("title", "description", "status", "priority")
PRIORITIES = range(1, 6)


class TicketAPI(Tools):
    """A queue of tickets; who makes one is logged in. Some tickets of the data have words as numbers."""

    DEFAULTS: ClassVar = {"ticket_queue": [], "ticket_counter": 1, "current_user": None}
    ticket_queue: list[Ticket]
    ticket_counter: int
    current_user: str | None

    def ticket_login(self, username: str, password: str) -> Result:
        """Log in; there is no list of users, so any name and password that are not empty will do."""
        if not username or not password:
            raise ToolError("username and password must not be empty")
        self.current_user = username
        return {"success": True}

    def logout(self) -> Result:
        """Log out."""
        was = self.current_user is not None
        self.current_user = None
        return {"success": was}

    def ticket_get_login_status(self) -> Result:
        """Whether somebody is logged in."""
        return {"login_status": self.current_user is not None}

    def create_ticket(self, title: str, description: str = "", priority: int = 1) -> Result:
        """A new, open ticket with the next number."""
        user = self._user()
        _check_priority(priority)
        ticket = {
            "id": self.ticket_counter,
            "title": title,
            "description": description,
            "status": "Open",
            "priority": priority,
            "created_by": user,
        }
        self.ticket_queue.append(ticket)
        self.ticket_counter += 1
        return {name: ticket[name] for name in ("id", "title", "description", "status", "priority")}

    def get_ticket(self, ticket_id: int | str) -> Result:
        """One ticket."""
        return dict(self._ticket(ticket_id))

    def get_user_tickets(self, status: str | None = None) -> Result:
        """The user's tickets, those with a status if one is named."""
        user = self._user()
        mine = [ticket for ticket in self.ticket_queue if ticket.get("created_by") == user]
        return {"tickets": [dict(t) for t in mine if status is None or t.get("status") == status]}

    def edit_ticket(self, ticket_id: int | str, updates: dict[str, Any]) -> Result:
        """Other details."""
        ticket = self._ticket(ticket_id)
        if unknown := [name for name in updates if name not in EDITABLE]:
            raise ToolError(f"a ticket has no '{unknown[0]}' to edit; it has {', '.join(EDITABLE)}")
        if "priority" in updates:
            _check_priority(updates["priority"])
        ticket.update(updates)
        return {"status": f"ticket {ticket_id} was updated"}

    def resolve_ticket(self, ticket_id: int | str, resolution: str) -> Result:
        """Resolve it, saying how."""
        ticket = self._ticket(ticket_id)
        if ticket.get("status") == "Resolved":
            raise ToolError(f"ticket {ticket_id} is resolved already")
        ticket.update(status="Resolved", resolution=resolution)
        return {"status": f"ticket {ticket_id} was resolved"}

    def close_ticket(self, ticket_id: int | str) -> Result:
        """Close it."""
        ticket = self._ticket(ticket_id)
        if ticket.get("status") == "Closed":
            raise ToolError(f"ticket {ticket_id} is closed already")
        ticket["status"] = "Closed"
        return {"status": f"ticket {ticket_id} was closed"}

    def _user(self) -> str:
        if self.current_user is None:
            raise ToolError("nobody is logged in: ticket_login first")
        return self.current_user

    def _ticket(self, ticket_id: int | str) -> Ticket:
        for ticket in self.ticket_queue:
            if ticket["id"] == ticket_id:
                return ticket
        raise ToolError(f"there is no ticket {ticket_id}")


def _check_priority(priority: Any) -> None:
    if priority not in PRIORITIES:
        raise ToolError(f"priority: 1 to 5, not {priority!r}")
