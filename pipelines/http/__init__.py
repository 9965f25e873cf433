"""The common part of the HTTP servers: the collector, and the pages and interface of results."""
