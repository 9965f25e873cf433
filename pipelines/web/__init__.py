"""The web page of results: an ASGI application (``sotto serve``), and the same pages as one static
HTML file (``sotto report``).

:mod:`~pipelines.web.pages` lists pages and their sections, and says how to add one.
"""
