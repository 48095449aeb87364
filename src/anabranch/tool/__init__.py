"""Tools: the class ``Tool``, the decorator ``@tool``, and ``HandoffTool``.

Names outside of ``__all__`` are for other packages of this library.
"""

from anabranch._asking import Runnable, has_methods, wrong_kind
from anabranch.tool._context import BranchContext, Op, caller_of
from anabranch.tool._opening import (
    Runtime,
    new_journal,
    open_call,
    patience_of,
    require_list,
    require_tool,
    require_tools,
    warn_of_rounds,
)
from anabranch.tool._parameters import Parameters, hints_of
from anabranch.tool._tools import FunctionTool, HandoffTool, Tool, ToolAnnotations, tool
from anabranch.tool._values import FILE_METHODS
from anabranch.tool._versions import checked_version, code_version, without_defaults

__all__ = ["FunctionTool", "HandoffTool", "Runnable", "Tool", "ToolAnnotations", "tool"]
