"""Push delivery: subscriptions with an endpoint get their messages as HTTP requests.

`envelope`, `oidc` and `slow_start` are plain functions and objects. `pusher` and `delivery` are the
asyncio part around them, with `timer` for the broker's clock and `http_sender` for HTTP (extra
`http`).
"""
