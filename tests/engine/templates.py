"""Tiny byte-level tokenizers in several chat styles, built offline and byte for byte the same each time.

The templates in ``chat/`` have the shape of real ones, pitfalls included: a dated preamble merged into the system
message, trimming, a default system prompt, a think block for the last answer, a rejected role, a renamed role, an end
token after the last message only. Each style also states, as plain text, what its framing must be.
Must not import agentcho.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from string import printable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHAT = Path(__file__).parent / "chat"
WORDS = ("user", "assistant", "system", "model", " the", " and", " to")
LLAMA3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
GEMMA = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
PHI = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
INST = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
PLAIN = ("<unk>", "</s>")
CALLING = ("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LISTED = (*INST, "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
MARKED = (*INST, "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]")
FENCED = (
    *INST,
    "<calls>",
    "</calls>",
    "<call>",
    "</call>",
    "<sep>",
    "<outputs>",
    "</outputs>",
    "<output>",
    "</output>",
)
HARMONY = ("<|endoftext|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>")


@dataclass(frozen=True)
class Style:
    """A template, its added tokens, and the expected framing: an opening and a closing for each role.

    ``{role}`` in ``opening`` and ``closing`` stands for the role; ``others`` overrides them per role.
    ``preamble`` begins every conversation, after the BOS.
    """

    template: str | None
    special: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    others: tuple[tuple[str, str, str], ...] = ()
    bos: str | None = None
    eos: str = ""
    encodes_bos: bool = False
    plain: tuple[str, ...] = ()
    unigram: bool = False
    preamble: str = ""

    @property
    def begins(self) -> str:
        """The text that begins a conversation; BOS only if the template writes it: stock transformers adds none."""
        written = self.bos is not None and "bos_token" in (self.jinja or "")
        return (self.bos or "" if written else "") + self.preamble

    @property
    def added(self) -> tuple[str, ...]:
        """All strings that must never become a single token inside content."""
        return self.special + self.plain

    @property
    def jinja(self) -> str | None:
        """The template's source."""
        return (CHAT / f"{self.template}.jinja").read_text() if self.template else None

    def frame(self, role: str) -> tuple[str, str]:
        """The text before and after the content of a message of that role."""
        other = {name: (opening, closing) for name, opening, closing in self.others}
        return other.get(role, (self.opening.format(role=role), self.closing.format(role=role)))


def styles() -> dict[str, Style]:
    """Every style by name. The tokenizer of ``post`` adds a BOS that no template writes; the BOS of ``unused`` is never
    written."""
    header, turn, end = (
        "<|start_header_id|>{role}<|end_header_id|>\n\n",
        "<|im_start|>{role}\n",
        "<|im_end|>\n",
    )
    model = ("assistant", "<start_of_turn>model\n", "<end_of_turn>\n")
    alias = ("system", "<start_of_turn>user\n", "<end_of_turn>\n")
    says = "<start_of_turn>{role}\n", "<end_of_turn>\n", (model, alias)
    both = "<|endoftext|>", "<|im_end|>"
    day = datetime.now().strftime("%d %b %Y")
    system = header.format(role="system") + f"Knowledge ends: May 2024\nThe day is: {day}\n\n"
    dated = (("system", system, "<|eot_id|>"),)
    return {
        "llama3": Style("llama3", LLAMA3, header, "<|eot_id|>", dated, LLAMA3[0], "<|eot_id|>", encodes_bos=True),
        "chatml": Style("chatml", CHATML, turn, end, eos="<|im_end|>", plain=("<think>", "</think>")),
        "gemma": Style("gemma", GEMMA, *says, bos="<bos>", eos="<eos>"),
        "named": Style("named", CHATML, turn, end, eos="<|im_end|>"),
        "post": Style("named", CHATML, turn, end, (), *both, encodes_bos=True),
        "unused": Style("named", CHATML, turn, end, (), *both),
        "bare": Style(None, CHATML, eos="<|im_end|>"),
    } | _wilder()


def _wilder() -> dict[str, Style]:
    inst = (("assistant", " ", "</s>"),)
    rules = ("system", "<|start|>developer<|message|># Rules\n\n", "\n\n<|end|>")
    final = ("assistant", "<|start|>assistant<|channel|>final<|message|>", "<|end|>")
    says, always = "<|start|>{role}<|message|>", "<|start|>system<|message|>You are a tester.\nReasoning: low<|end|>"
    spelt = tuple((role, f"### {role.capitalize()}:\n", "\n\n") for role in ("system", "user"))
    return {
        "pieces": Style("phi", PHI, "<|{role}|>\n", "<|end|>\n", eos="<|endoftext|>", unigram=True),
        "phi": Style("phi", PHI, "<|{role}|>\n", "<|end|>\n", eos="<|endoftext|>"),
        "inst": Style("inst", INST, "[INST] ", "[/INST]", inst, bos="<s>", eos="</s>", encodes_bos=True),
        "plain": Style("plain", PLAIN, "### Assistant:\n", "</s>\n\n", spelt, eos="</s>"),
        "harmony": Style("harmony", HARMONY, says, "<|end|>", (rules, final), eos="<|return|>", preamble=always),
    }


def calling() -> dict[str, Style]:
    """Styles of templates with function calling, after the documented formats of Qwen, Llama 3.1, Mistral and
    DeepSeek."""
    known = styles()
    hermes = replace(known["chatml"], template="hermes", plain=("<think>", "</think>", *CALLING))
    return {
        "hermes": hermes,
        "spelt": replace(hermes, plain=()),
        "parameters": replace(known["llama3"], template="parameters"),
        "marked": replace(known["inst"], template="marked", special=MARKED, opening="[INST]", encodes_bos=False),
        "fenced": replace(known["inst"], template="fenced", special=FENCED, opening="[INST]", encodes_bos=False),
        "listed": replace(known["inst"], template="listed", special=LISTED, opening="[INST]", encodes_bos=False),
    }


def whole() -> dict[str, Style]:
    """Styles of templates that do not frame each message independently: thoughts that a prompt opens and that are cut
    from earlier answers (QwQ, Qwen3.5); a system message in the last user turn (Mistral v0.3 and Nemo); a BOS in front
    of every message (SmolLM2); blanks before the BOS if there is a system message (DeepSeek V2.5)."""
    known = styles()
    return {
        "thinking": replace(known["chatml"], template="thinking"),
        "folded": replace(known["inst"], template="folded"),
        "opener": replace(known["chatml"], template="opener", bos="<|im_start|>", plain=()),
        "indented": Style(
            *("indented", ("<s>", "<|user|>", "<|assistant|>", "<|end|>"), "<|{role}|>", ""),
            others=(("system", " " * 4 + "<s>", ""), ("assistant", "<|assistant|>", "<|end|>")),
            bos="<s>",
            eos="<|end|>",
        ),
    }


def thinkers() -> dict[str, Style]:
    """Styles of models that think before they answer; each template names the families it is modelled on."""
    known = styles()
    marks = "[THINK]", "[/THINK]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"
    return {
        "thoughtful": replace(known["chatml"], template="thoughtful"),
        "opened": replace(known["chatml"], template="opened"),
        "keeping": replace(known["inst"], template="keeping", special=(*INST, *marks), encodes_bos=False),
        "channels": replace(known["harmony"], template="channels"),
    }


def shapes() -> dict[str, Style]:
    """Styles of templates that close or open their messages in unusual ways; each template names the model families
    it is modelled on."""
    both = "<|endoftext|>", "<|endoftext|>"
    marks = tuple(f"<|{role}_{end}|>" for role in ("system", "user", "assistant") for end in ("start", "end"))
    turns = "<s>", "<|START|>", "<|END|>", "<|SYSTEM|>", "<|USER|>", "<|BOT|>", "<|SAY|>", "<|SAID|>"
    rules, user = "<|START|><|SYSTEM|># Rules\nBe good.\n", "<|START|><|USER|>"
    opened = ("system", rules, "<|END|>"), ("user", user, "<|END|>")
    said = ("assistant", "<|START|><|BOT|><|SAY|>", "<|SAID|><|END|>")
    spoken = tuple((role, f"{role.capitalize()}:", "\n\n") for role in ("system", "user"))
    headed = (
        *((role, f"### {role.capitalize()}:\n", "\n\n") for role in ("system", "user")),
        ("assistant", "### Assistant:\n", "</s>"),
    )
    lined = (
        *((role, f"{role.capitalize()}:\n", "\n\n") for role in ("system", "user")),
        ("assistant", "Assistant:\n", "</s>\n\n"),
    )
    tulu = (("assistant", "<|assistant|>\n", "<|endoftext|>\n"),)
    alone = (("assistant", "<|assistant|>\n", "<|endoftext|>"),)
    roles = "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"
    turn, end = "<|im_start|>{role}\n", "<|im_end|>\n"
    metadata = "<|im_start|>system\n## Metadata\n\nDate: today\n\n", "\n\n<|im_end|>\n"
    return {
        "worded": Style("worded", ("</s>",), "", "", headed, eos="</s>"),
        "blanks": Style("blanks", ("</s>",), "", "", lined, eos="</s>"),
        "leftopen": Style("leftopen", CHATML, turn, end, eos="<|im_end|>"),
        "ownends": Style("ownends", ("<s>", *marks), "<|{role}_start|>", "<|{role}_end|>", bos="<s>", eos=marks[-1]),
        "unclosed": Style("unclosed", roles, "<|{role}|>\n", "", alone, eos="<|endoftext|>"),
        "turned": Style("turned", turns, others=(*opened, said), bos="<s>", eos="<|END|>"),
        "tulu": Style("tulu", both[:1], "<|{role}|>\n", "\n", tulu, *both),
        "colons": Style("colons", ("</s>",), "Assistant:", "</s>", spoken, eos="</s>"),
        "appended": Style("appended", CHATML, turn, end, (("system", *metadata),), eos="<|im_end|>"),
        "misfit": Style("misfit", CHATML, turn, end, eos="<|im_end|>"),
    } | _openers()


def _openers() -> dict[str, Style]:
    """Styles whose prompts open an answer differently from how answers appear in a conversation."""
    roles = "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "[MASK]", "<sop>"
    empty = (("assistant", "<|assistant|>\n<think></think>\n", "<|endoftext|>"),)
    channel = "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"
    within = "<bos>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"
    model = (("assistant", "<|turn>model\n", "<turn|>\n"),)
    turns = ("<s>", *(f"<|{word}|>" for word in ("START", "END", "SYSTEM", "USER", "ASSISTANT", "SAY", "SAID")))
    turns += "<|START_THINKING|>", "<|END_THINKING|>"
    said = (("assistant", "<|START|><|ASSISTANT|><|SAY|>", "<|SAID|><|END|>"),)
    spoken = tuple((role, f"<|START|><|{role.upper()}|>", "<|END|>") for role in ("system", "user"))
    think, begins = ("<think>", "</think>"), "[MASK]<sop>"
    return {
        "prefixed": Style(
            *("prefixed", roles, "<|{role}|>\n", "", empty), eos="<|endoftext|>", plain=think, preamble=begins
        ),
        "emptied": Style("emptied", channel, "<|turn>{role}\n", "<turn|>\n", bos="<bos>", eos="<turn|>"),
        "responding": Style("responding", turns, others=(*spoken, *said), bos="<s>", eos="<|END|>"),
        "within": Style("within", within, "<|turn>{role}\n", "<turn|>\n", model, bos="<bos>", eos="<turn|>"),
    }


def tokenizer(style: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of about 290 tokens with the style's added tokens and template.

    With ``unigram``, one of single characters whose vocabulary also has the added tokens as ordinary pieces.
    """
    look = (styles() | calling() | whole() | thinkers() | shapes())[style]
    core = _pieces(look) if look.unigram else _bytes_and_words()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in look.special])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in look.plain])
    if look.encodes_bos and look.bos:
        bos = (look.bos, core.token_to_id(look.bos))
        core.post_processor = processors.TemplateProcessing(f"{look.bos} $A", f"{look.bos} $A $B", [bos])
    named = {"bos_token": look.bos, "eos_token": look.eos, "pad_token": look.special[0]}
    make: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make(tokenizer_object=core, clean_up_tokenization_spaces=False, **named)
    fast.chat_template = look.jinja
    return fast


def _pieces(look: Style) -> Tokenizer:
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = [("<unk>", 0.0), *((text, -1.0) for text in look.added)]
    vocab += [(piece, -9.0) for piece in (*fallback, "\u2581", *printable)]
    core = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    spaces = decoders.Replace("\u2581", " ")
    core.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    return core


def _bytes_and_words() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for word in (w.replace(" ", "Ġ") for w in WORDS):
        for end in range(1, len(word)):
            if word[: end + 1] not in vocab:
                merges.append((word[:end], word[end]))
                vocab[word[: end + 1]] = len(vocab)
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core


def blank_before_the_end() -> PreTrainedTokenizerFast:
    """The tokenizer of ``inst`` with a template that writes a blank before the token that ends an answer."""
    found = tokenizer("inst")
    found.chat_template = (
        "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}"
        "{{ ' ' + message.content + ' ' + eos_token }}{% else %}{{ '[INST] ' + message.content + ' [/INST]' }}"
        "{% endif %}{% endfor %}"
    )
    return found
