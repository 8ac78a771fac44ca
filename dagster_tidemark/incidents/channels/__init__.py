"""Channels that send messages, one module for each protocol.

A channel renders a delivery and sends it once. Does not belong here: retries and order (`incidents.sender`), and the
choice of incidents for a channel (`incidents.routing`).
"""
