"""The web page of results: an ASGI application, its charts, and the same as one static file."""
