"""Short posts in public (BFCL's TwitterAPI, called PostingAPI in places)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools, with_numbers

Tweet = dict[str, Any]


class TwitterAPI(Tools):
    """``tweets`` and ``comments`` by number of the tweet; ``retweets``: numbers by user."""

    DEFAULTS: ClassVar = {
        "username": "john",
        "password": "john123",
        "authenticated": False,
        "tweets": {},
        "comments": {},
        "retweets": {},
        "following_list": ["alice", "bob"],
        "tweet_counter": 0,
    }
    username: str
    password: str
    authenticated: bool
    tweets: dict[int, Tweet]
    comments: dict[int, list[dict[str, str]]]
    retweets: dict[str, list[int]]
    following_list: list[str]
    tweet_counter: int

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.tweets = with_numbers(self.tweets)
        self.comments = with_numbers(self.comments)

    def authenticate_twitter(self, username: str, password: str) -> Result:
        """Log in."""
        if (username, password) == (self.username, self.password):
            self.authenticated = True
            return {"authentication_status": True}
        return {"authentication_status": False}

    def posting_get_login_status(self) -> Result:
        """Whether the user is logged in."""
        return {"login_status": self.authenticated}

    def post_tweet(
        self, content: str, tags: list[str] | None = None, mentions: list[str] | None = None
    ) -> Result:
        """Post; it gets the next number."""
        self._user()
        tweet = {
            "id": self.tweet_counter,
            "username": self.username,
            "content": content,
            "tags": list(tags or []),
            "mentions": list(mentions or []),
        }
        self.tweets[self.tweet_counter] = tweet
        self.tweet_counter += 1
        return dict(tweet)

    def retweet(self, tweet_id: int) -> Result:
        """Pass a tweet on, once."""
        user = self._user()
        self._tweet(tweet_id)
        mine = self.retweets.setdefault(user, [])
        if tweet_id in mine:
            return {"retweet_status": "Already retweeted"}
        mine.append(tweet_id)
        return {"retweet_status": "Successfully retweeted"}

    def comment(self, tweet_id: int, comment_content: str) -> Result:
        """Say something of a tweet."""
        user = self._user()
        self._tweet(tweet_id)
        self.comments.setdefault(tweet_id, []).append({"username": user, "content": comment_content})
        return {"comment_status": "Comment added successfully"}

    def mention(self, tweet_id: int, mentioned_usernames: list[str]) -> Result:
        """Add users to those a tweet mentions."""
        self._user()
        tweet = self._tweet(tweet_id)
        tweet["mentions"] = [*tweet.get("mentions", []), *mentioned_usernames]
        return {"mention_status": "Users mentioned successfully"}

    def follow_user(self, username_to_follow: str) -> Result:
        """Follow somebody."""
        self._user()
        if username_to_follow in self.following_list:
            return {"follow_status": False}
        self.following_list.append(username_to_follow)
        return {"follow_status": True}

    def unfollow_user(self, username_to_unfollow: str) -> Result:
        """Follow somebody no more."""
        self._user()
        if username_to_unfollow not in self.following_list:
            return {"unfollow_status": False}
        self.following_list.remove(username_to_unfollow)
        return {"unfollow_status": True}

    def list_all_following(self) -> Result:
        """Whom the user follows."""
        self._user()
        return {"following_list": list(self.following_list)}

    def get_tweet(self, tweet_id: int) -> Result:
        """One tweet."""
        return dict(self._tweet(tweet_id))

    def get_user_tweets(self, username: str) -> Result:
        """All tweets of a user."""
        return {"user_tweets": [dict(tweet) for tweet in self._of(username)]}

    def search_tweets(self, keyword: str) -> Result:
        """Tweets whose text or tags hold a word, whatever its case."""
        wanted = keyword.casefold()
        found = [
            dict(tweet)
            for tweet in self.tweets.values()
            if any(wanted in text.casefold() for text in (tweet["content"], *tweet.get("tags", [])))
        ]
        return {"matching_tweets": found}

    def get_tweet_comments(self, tweet_id: int) -> Result:
        """What was said of a tweet."""
        self._tweet(tweet_id)
        return {"comments": [dict(said) for said in self.comments.get(tweet_id, [])]}

    def get_user_stats(self, username: str) -> Result:
        """A user's tweets, retweets and, of the account's owner, whom it follows."""
        return {
            "tweet_count": len(self._of(username)),
            "following_count": len(self.following_list) if username == self.username else 0,
            "retweet_count": len(self.retweets.get(username, [])),
        }

    def _of(self, username: str) -> list[Tweet]:
        return [tweet for tweet in self.tweets.values() if tweet["username"] == username]

    def _user(self) -> str:
        if not self.authenticated:
            raise ToolError("the user is not logged in: authenticate_twitter first")
        return self.username

    def _tweet(self, tweet_id: int) -> Tweet:
        if tweet_id not in self.tweets:
            raise ToolError(f"there is no tweet {tweet_id}")
        return self.tweets[tweet_id]
