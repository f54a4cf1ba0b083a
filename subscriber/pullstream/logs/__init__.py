"""Topics as logs, whose records are read by position: `feeds` are the calls, `follow` uses them.

No other part of the subscriber needs this folder. Programs import the public names from
`pullstream`, `pullstream.feeds` and `pullstream.follow`.
"""
