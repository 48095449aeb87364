"""Tools: the class ``Tool``, the decorator ``@tool``, and ``HandoffTool``.

Names outside of ``__all__`` serve other packages: the opening of a call, the version of a tool's
code, and checks of arguments.
"""

from anabranch.tool._code_version import checked_version as checked_version
from anabranch.tool._code_version import code_version as code_version
from anabranch.tool._kinds import has_methods as has_methods
from anabranch.tool._kinds import require_tool as require_tool
from anabranch.tool._kinds import require_tools as require_tools
from anabranch.tool._kinds import wrong_kind as wrong_kind
from anabranch.tool._opening import Runtime as Runtime
from anabranch.tool._opening import new_journal as new_journal
from anabranch.tool._opening import open_call as open_call
from anabranch.tool._opening import patience_of as patience_of
from anabranch.tool._opening import warn_of_rounds as warn_of_rounds
from anabranch.tool._parameters import Parameters as Parameters
from anabranch.tool._parameters import hints_of as hints_of
from anabranch.tool._tools import FunctionTool, HandoffTool, Tool, ToolAnnotations, tool
from anabranch.tool._values import FILE_METHODS as FILE_METHODS

__all__ = ["FunctionTool", "HandoffTool", "Tool", "ToolAnnotations", "tool"]
