"""Events of assets across deployments: received from a queue, passed to listeners, published to another queue.

Belongs here: the message, its checks, and the order in which a listener gets events. Does not belong here: files and
their notifications (`sources`), messages as data (`streams`), and the sensors (`sensors`).
"""
