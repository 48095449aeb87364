"""Questions to the user and samples of a model: requests, replies, and the ports that answer."""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._asking.answerer import (
        Absent,
        Answerer,
        AnswerError,
        AnsweringPolicy,
        Forwarding,
        PolicedAnswerer,
        answer,
        answer_all,
        answer_of_error,
        deliver,
    )
    from anabranch._asking.conversation import Conversation
    from anabranch._asking.conversing import Role, Talk, checked_tools, given_messages, with_own_ids
    from anabranch._asking.elicitation import (
        Accepted,
        Cancelled,
        Declined,
        Elicitation,
        ElicitResult,
        checked_model,
        describe,
        describe_entry,
        form_schema,
        reason_of,
    )
    from anabranch._asking.eliciting import (
        ElicitJob,
        UrlJob,
        fields_asked_again,
        find_question,
        run_elicit,
        run_elicit_url,
    )
    from anabranch._asking.host import (
        CAPABILITIES,
        Capabilities,
        Host,
        Runnable,
        Sampler,
        find_tool,
        first_arguments,
    )
    from anabranch._asking.misuse import (
        has_methods,
        refuse_as_argument,
        refuse_attribute,
        require_awaitable,
        require_operations,
        require_runnable,
        require_seconds,
        require_text,
        wrong_kind,
    )
    from anabranch._asking.replies import refusal, tool_use, wanted_form
    from anabranch._asking.sampling import (
        SampleJob,
        SampleResult,
        as_spec,
        check_options,
        count_answers,
        needs_of,
        request_of,
        run_sample,
    )
    from anabranch._asking.tokens import (
        ADMISSION_MARGIN,
        estimate_tokens,
        prompt_tokens,
        said,
        usage_tokens,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            ".answerer": (
                "Absent AnswerError Answerer AnsweringPolicy Forwarding PolicedAnswerer answer answer_all"
                " answer_of_error deliver"
            ),
            ".conversation": "Conversation",
            ".conversing": "Role Talk checked_tools given_messages with_own_ids",
            ".eliciting": "ElicitJob UrlJob fields_asked_again find_question run_elicit run_elicit_url",
            ".elicitation": (
                "Accepted Cancelled Declined ElicitResult Elicitation checked_model describe describe_entry"
                " form_schema reason_of"
            ),
            ".host": "CAPABILITIES Capabilities Host Runnable Sampler find_tool first_arguments",
            ".misuse": (
                "has_methods refuse_as_argument refuse_attribute require_awaitable"
                " require_operations require_runnable require_seconds require_text wrong_kind"
            ),
            ".replies": "refusal tool_use wanted_form",
            ".sampling": "SampleJob SampleResult as_spec check_options count_answers needs_of request_of run_sample",
            ".tokens": "ADMISSION_MARGIN estimate_tokens prompt_tokens said usage_tokens",
        },
    )
