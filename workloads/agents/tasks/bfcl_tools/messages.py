"""Messages between the users of a workspace (BFCL's MessageAPI)."""

from __future__ import annotations

from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools


class MessageAPI(Tools):
    """``user_map``: id by name. ``inbox``: {id of the receiver: texts}, oldest first."""

    DEFAULTS: ClassVar = {
        "user_map": {"Alice": "USR001", "Bob": "USR002", "Catherine": "USR003", "Daniel": "USR004"},
        "user_count": 4,
        "inbox": [],
        "message_count": 0,
        "current_user": None,
    }
    user_map: dict[str, str]
    user_count: int
    inbox: list[dict[str, Any]]
    message_count: int
    current_user: str | None

    def list_users(self) -> Result:
        """Names of all users."""
        return {"user_list": list(self.user_map)}

    def get_user_id(self, user: str) -> Result:
        """The id that goes with a name."""
        if user not in self.user_map:
            raise ToolError(f"no user is named '{user}'")
        return {"user_id": self.user_map[user]}

    def message_login(self, user_id: str) -> Result:
        """Log a user in."""
        self._known(user_id)
        self.current_user = user_id
        return {"login_status": True, "message": f"{user_id} is logged in"}

    def message_get_login_status(self) -> Result:
        """Whether somebody is logged in."""
        return {"login_status": self.current_user is not None}

    def add_contact(self, user_name: str) -> Result:
        """A new user, who is given the next id."""
        self._user()
        if user_name in self.user_map:
            raise ToolError(f"'{user_name}' is a user already")
        self.user_count += 1
        user_id = f"USR{self.user_count:03d}"
        self.user_map[user_name] = user_id
        return {"added_status": True, "user_id": user_id, "message": f"'{user_name}' was added"}

    def send_message(self, receiver_id: str, message: str) -> Result:
        """Send a text."""
        self._user()
        self._known(receiver_id)
        self.message_count += 1
        self.inbox.append({receiver_id: [message]})
        told = f"sent to {receiver_id}"
        return {"sent_status": True, "message_id": self.message_count, "message": told}

    def delete_message(self, receiver_id: str) -> Result:
        """Take back the latest text to a receiver."""
        self._user()
        for place in reversed(range(len(self.inbox))):
            texts = self.inbox[place].get(receiver_id)
            if texts:
                rest = texts[:-1] if isinstance(texts, list) else []
                self.inbox[place][receiver_id] = rest
                if not rest:
                    del self.inbox[place]
                told = f"the latest message to {receiver_id} was deleted"
                return {"deleted_status": True, "receiver_id": receiver_id, "message": told}
        raise ToolError(f"there is no message to {receiver_id}")

    def view_messages_sent(self) -> Result:
        """All texts by receiver."""
        self._user()
        sent: dict[str, list[Any]] = {}
        for receiver, text in self._texts():
            sent.setdefault(receiver, []).append(text)
        return {"messages": sent}

    def search_messages(self, keyword: str) -> Result:
        """Texts that hold a word, whatever its case."""
        self._user()
        wanted = keyword.casefold()
        found = [
            {"receiver_id": receiver, "message": text}
            for receiver, text in self._texts()
            if wanted in str(text).casefold()
        ]
        return {"results": found}

    def get_message_stats(self) -> Result:
        """How many messages went to the user, and to how many people there are any."""
        user = self._user()
        receivers = [receiver for receiver, _ in self._texts()]
        return {"stats": {"received_count": receivers.count(user), "total_contacts": len(set(receivers))}}

    def _texts(self) -> list[tuple[str, Any]]:
        """(receiver, text); the data has texts, lists of texts, and texts by sender."""
        flat = []
        for entry in self.inbox:
            for receiver, texts in entry.items():
                flat += [(receiver, text) for text in (texts if isinstance(texts, list) else [texts])]
        return flat

    def _user(self) -> str:
        if self.current_user is None:
            raise ToolError("nobody is logged in: message_login first")
        return self.current_user

    def _known(self, user_id: str) -> None:
        if user_id not in self.user_map.values():
            raise ToolError(f"no user has the id '{user_id}'")
