"""Messages, posts and tickets."""

import pytest

from workloads.agents.tasks.bfcl_tools.base import ToolError
from workloads.agents.tasks.bfcl_tools.messages import MessageAPI
from workloads.agents.tasks.bfcl_tools.posting import TwitterAPI
from workloads.agents.tasks.bfcl_tools.tickets import TicketAPI


def test_messages_want_a_user():
    api = MessageAPI({})
    with pytest.raises(ToolError, match="message_login first"):
        api.send_message("USR002", "hi")
    with pytest.raises(ToolError, match="no user has the id"):
        api.message_login("USR999")
    assert api.message_login("USR001")["login_status"]


def test_messages_are_grouped_and_taken_back():
    api = MessageAPI({"current_user": "USR001", "inbox": [{"USR002": ["old", "older"]}], "message_count": 5})
    assert api.send_message("USR002", "new")["message_id"] == 6
    assert api.add_contact("Eve")["user_id"] == "USR005"
    api.send_message("USR005", "hello")
    assert api.view_messages_sent()["messages"] == {"USR002": ["old", "older", "new"], "USR005": ["hello"]}
    api.delete_message("USR002")
    api.delete_message("USR002")
    assert api.view_messages_sent()["messages"]["USR002"] == ["old"]
    assert [found["message"] for found in api.search_messages("HELL")["results"]] == ["hello"]
    with pytest.raises(ToolError, match="no message to USR003"):
        api.delete_message("USR003")


def test_two_tasks_do_not_share_defaults():
    first, second = MessageAPI({"current_user": "USR001"}), MessageAPI({"current_user": "USR001"})
    first.send_message("USR002", "mine")
    assert second.view_messages_sent() == {"messages": {}}


def test_posting():
    config = {"tweets": {"0": {"id": 0, "username": "ada", "content": "Old", "tags": ["#x"]}}}
    api = TwitterAPI({**config, "username": "ada", "password": "p", "tweet_counter": 4})
    with pytest.raises(ToolError, match="authenticate_twitter first"):
        api.post_tweet("hi")
    assert api.authenticate_twitter("ada", "wrong") == {"authentication_status": False}
    assert api.authenticate_twitter("ada", "p") == {"authentication_status": True}
    assert api.post_tweet("hi", tags=["#new"])["id"] == 4
    api.comment(4, "nice")
    api.mention(0, ["@bob"])
    assert api.get_tweet(0)["mentions"] == ["@bob"]
    assert api.get_tweet_comments(4)["comments"] == [{"username": "ada", "content": "nice"}]
    assert [api.retweet(0)["retweet_status"] for _ in range(2)][1] == "Already retweeted"
    assert [t["id"] for t in api.search_tweets("#NEW")["matching_tweets"]] == [4]
    assert api.get_user_stats("ada") == {"tweet_count": 2, "following_count": 2, "retweet_count": 1}
    with pytest.raises(ToolError, match="no tweet 9"):
        api.comment(9, "?")
    assert "mentions" not in config["tweets"]["0"], "the data must stay as it is"


def test_following():
    api = TwitterAPI({"authenticated": True, "following_list": ["bob"]})
    assert api.follow_user("bob") == {"follow_status": False}
    assert api.unfollow_user("bob") == {"unfollow_status": True}
    assert api.list_all_following() == {"following_list": []}


def test_tickets():
    api = TicketAPI({"ticket_queue": [{"id": "T1", "status": "Open"}], "ticket_counter": 7})
    with pytest.raises(ToolError, match="ticket_login first"):
        api.create_ticket("x")
    api.ticket_login("ada", "p")
    assert api.create_ticket("Broken", priority=5)["id"] == 7
    assert api.get_user_tickets()["tickets"][0]["created_by"] == "ada"
    api.edit_ticket(7, {"priority": 2})
    api.resolve_ticket(7, "fixed")
    api.close_ticket("T1")
    assert [t["status"] for t in api.state()["ticket_queue"]] == ["Closed", "Resolved"]
    for wrong in (
        lambda: api.resolve_ticket(7, "again"),
        lambda: api.close_ticket("T1"),
        lambda: api.get_ticket(8),
        lambda: api.edit_ticket(7, {"owner": "bob"}),
        lambda: api.edit_ticket(7, {"priority": 9}),
        lambda: api.create_ticket("x", priority=0),
    ):
        with pytest.raises(ToolError):
            wrong()
    assert [api.logout()["success"] for _ in range(2)] == [True, False]
