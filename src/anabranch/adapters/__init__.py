"""Tools of this library in agents of other projects: one module for each framework.

    anabranch.adapters.pydantic_ai       Pydantic AI
    anabranch.adapters.langchain         LangChain and LangGraph
    anabranch.adapters.openai_agents     the OpenAI Agents SDK
    anabranch.adapters.google_adk        Google's Agent Development Kit
    anabranch.adapters.agent_framework   Microsoft's Agent Framework

Each has ``as_tool(tool, rounds)``, which makes a tool of the framework. When the tool asks, the agent pauses in
the framework's way of asking users; the answers may come in another process. The function imports the framework,
on which the application itself depends.
"""

__all__: list[str] = []
