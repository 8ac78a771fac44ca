"""Events of assets across deployments: received from a queue, passed to listeners, published to another queue.

Belongs here: the message, its checks, and the order of events for a listener. Does not belong here: files and
their notifications (`sources`), messages as data (`streams`), and the sensors (`sensors`).
"""
