"""A toy shop: the code location that the machinery is tested on. `TIDEMARK_CODE_LOCATION=tests.toys` names it.

What is here stays as it is whatever becomes of the example domain: the machinery's tests know its numbers by heart.
"""
