"""The six messages of the saga proposal, field for field."""

from typing import Any

TARGET = {"action": "accept", "content": {"target": "production"}}

GREEN = {
    "role": "assistant",
    "content": {"type": "text", "text": "Yes, all systems are green."},
    "model": "client-side-llm-v2",
}

FIRST: dict[str, Any] = {"stepId": "target", "result": TARGET}

SECOND: dict[str, Any] = {"stepId": "safety", "result": GREEN}

DONE = "Version value runs on production."

MESSAGE_2: dict[str, Any] = {
    "state": "suspended",
    "steps": [
        {
            "type": "elicitation",
            "stepId": "target",
            "params": {
                "message": "Where to?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"target": {"type": "string"}},
                    "required": ["target"],
                },
            },
        }
    ],
}

QUESTION = {"type": "text", "text": "Is deploying to 'production' safe right now?"}

MESSAGE_4: dict[str, Any] = {
    "state": "suspended",
    "steps": [
        {
            "type": "sampling",
            "stepId": "safety",
            "params": {"messages": [{"role": "user", "content": QUESTION}], "maxTokens": 100},
        }
    ],
}

MESSAGE_6 = {"content": [{"type": "text", "text": DONE}]}
