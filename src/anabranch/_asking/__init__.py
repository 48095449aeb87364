"""Questions and samples of a tool: the requests and replies of its context, and the ports that answer.

tokens.py            estimates of the tokens of requests and replies
tool_arguments.py    the arguments of a model's tool call
wanted_form.py       the form of a structured sample's answer
conversation.py      the messages of one branch
host.py              an edge's offer to a tool: capabilities, and a model of the server
answerer.py          the port for answers in this process
answering_policy.py  the limits that a client sets for samples
sampling.py          ``ctx.sample``
eliciting.py         ``ctx.elicit`` and ``ctx.elicit_url``
conversing.py        ``ctx.converse``
"""
