"""Adapters that make anabranch tools usable in agents of other frameworks, one module each.

    anabranch.adapters.pydantic_ai       Pydantic AI
    anabranch.adapters.langchain         LangChain and LangGraph
    anabranch.adapters.openai_agents     the OpenAI Agents SDK
    anabranch.adapters.google_adk        Google's Agent Development Kit
    anabranch.adapters.agent_framework   Microsoft's Agent Framework

Each module has ``as_tool(tool, rounds)``, which returns a tool of the framework. When the tool
asks, the agent pauses as the framework prescribes for questions to users. Another process may pass
in the answers. ``as_tool`` imports the framework, which the application installs.
"""

__all__: list[str] = []
