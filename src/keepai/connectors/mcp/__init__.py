"""Any MCP server as a connector. In reading order:

mcp_connector  what scripts call, and the owner's settings
tool_lock      the tools that a person confirmed, in keep.mcp.lock
tool_lookup    rules that say how to find out whether a tool did its work
mcp_client     the protocol: what is asked of a server, and what its answer proves
stdio_wire     a server that is a program of this machine
http_wire      a server that is reached by HTTP

Nothing here sends a call twice, and a call whose answer is lost is unknown. The MCP SDK is not used: it does not say
whether a byte has left, and its client repeats a call that asks for more input.
"""
