"""Push delivery: subscriptions with an endpoint get their messages as HTTP requests.

`envelope` has plain functions, which make the requests. `pusher` and `delivery` are the asyncio
part around them. `sender` posts the requests; only it needs aiohttp (extra `http`).
"""
