"""Tools: the class ``Tool``, the decorator ``@tool``, and ``HandoffTool``.

Names outside of ``__all__`` serve other packages: the context, the opening of a call, the version of a
tool's code, and checks of arguments.
"""

from anabranch._asking import Runnable
from anabranch.tool._code_version import checked_version, code_version
from anabranch.tool._context import BranchContext, Op, caller_of
from anabranch.tool._kinds import has_methods, require_list, require_tool, require_tools
from anabranch.tool._opening import Runtime, new_journal, open_call, patience_of, warn_of_rounds
from anabranch.tool._parameters import Parameters, hints_of
from anabranch.tool._same_request import without_defaults
from anabranch.tool._tools import FunctionTool, HandoffTool, Tool, ToolAnnotations, tool
from anabranch.tool._values import FILE_METHODS
from anabranch.tool._wrong_kind import wrong_kind

__all__ = ["FunctionTool", "HandoffTool", "Runnable", "Tool", "ToolAnnotations", "tool"]
