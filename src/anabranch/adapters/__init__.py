"""Tools of this library in agents of other makers: a module for each framework.

    anabranch.adapters.pydantic_ai       Pydantic AI
    anabranch.adapters.langchain         LangChain and LangGraph
    anabranch.adapters.openai_agents     the OpenAI Agents SDK
    anabranch.adapters.google_adk        Google's Agent Development Kit
    anabranch.adapters.agent_framework   Microsoft's Agent Framework

Each has ``as_tool(tool, rounds)``, which makes a tool of the framework's. Where the tool asks, the agent
pauses in the framework's own way of asking people; the answers may come in another process. The
framework is imported when the function is called, and is the application's own dependency.
"""

__all__: list[str] = []
