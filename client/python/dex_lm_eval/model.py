"""The harness's model "dex": texts become tokens here, with the model's own tokenizer, and numbers on the platform."""

import concurrent.futures
import difflib
import hashlib
import inspect
import logging
import pathlib

import transformers
from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import has_bos_prefix, normalize_gen_kwargs, postprocess_generated_text
from tqdm import tqdm

from .connection import LONGEST_GENERATION_SECONDS, DexError, Platform

eval_logger = logging.getLogger(__name__)

DEFAULT_GENERATED_TOKENS = 256  # of the harness's own models
REQUESTS_AT_ONCE = 8  # for --batch_size auto
MOST_STOPS, LONGEST_STOP_BYTES = 16, 256  # api.md §6

# Of a task's generation_kwargs, besides what is handled by name: fields of GenerateRequest.
SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")


@register_model("dex")
class DexLM(TemplateLM):
    """A base model or an adapter on a platform, tokenised and cut as the harness does it for transformers.

    model: base model or adapter id. tokenizer: folder with the base model's tokenizer.json. server: host:port, else as
    dexctl finds it. max_length: most tokens that one is conditioned on, by default all that the server has room for.
    timeout_seconds: of one request. batch_size (--batch_size): requests on their way at once; the server batches.
    device: the platform's, whatever is given; the harness always gives one.
    """

    def __init__(self, model=None, tokenizer=None, server=None, max_length=None,
                 timeout_seconds=LONGEST_GENERATION_SECONDS, batch_size=1, max_batch_size=None, device=None, **unknown):
        super().__init__()
        _refuse_unknown(unknown)
        if max_batch_size is not None:
            raise DexError("--max_batch_size does nothing here, the platform makes its own batches; leave it out")
        if not model:
            raise DexError("model= is missing: a base model or an adapter id, as dexctl models list and dexctl adapters "
                           "list show them")
        self._in_flight = _requests_at_once(batch_size)
        self._platform = Platform(server, timeout_seconds)
        self._served = self._platform.find(str(model))
        self.tokenizer = _load_tokenizer(tokenizer, self._served)
        # The server counts the scored token too, transformers only what comes before it.
        room = self._served.context_length - 1
        self.max_length = room if max_length is None else max_length
        if not 1 <= self.max_length <= room:
            raise DexError(f"max_length must be between 1 and {room}, one less than the context of "
                           f"{self._served.base}, got {max_length}")

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        """What stands before a text that has nothing before it."""
        bos = self.tokenizer.bos_token_id
        return self.tokenizer.eos_token_id if bos is None else bos

    @property
    def tokenizer_name(self):
        return self._served.base

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        if add_special_tokens is None:
            add_special_tokens = not has_bos_prefix(string, self.tokenizer.decode([self.prefix_token_id]))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)

    def loglikelihood(self, requests, disable_tqdm=False):
        for context, continuation in (request.args for request in requests):
            if not continuation:
                raise _no_token(context, continuation)
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        for texts, _, continuation in requests:
            if not continuation:
                raise _no_token(*texts)
            if len(continuation) > self.max_length:
                raise DexError(f"a continuation of {len(continuation)} tokens is too long, {self._served.base} scores "
                               f"at most {self.max_length}; it begins with {texts[1][:40]!r}. Shorten it in the task's data")

        def score(request):
            texts, context, continuation = request
            # Too long: what is furthest away goes, the continuation stays whole.
            ids = (context + continuation)[-(self.max_length + 1):]
            scores = self._platform.score(self._served, ids, len(ids) - len(continuation))
            answer = (sum(score.logprob for score in scores), all(score.likeliest for score in scores))
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
            return answer

        cut = sum(len(context) + len(continuation) > self.max_length + 1 for _, context, continuation in requests)
        if cut:
            eval_logger.warning("dex: %d of %d texts are longer than %d tokens; the beginnings of their contexts are left "
                                "out", cut, len(requests), self.max_length)
        return self._each(score, requests, "log-likelihoods", disable_tqdm)

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows, documents = [], []
        for number, (text,) in enumerate(request.args for request in requests):
            tokens = self.tok_encode(text)
            for pair in utils.get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, context_len=1):
                windows.append((None, *utils.make_disjoint_window(pair)))
                documents.append(number)
        totals = [0.0] * len(requests)
        for number, (value, _) in zip(documents, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            totals[number] += value
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests, disable_tqdm=False):
        def generate(request):
            context, options = request.args
            text = self._complete(context, options)
            self.cache_hook.add_partial("generate_until", (context, options), text)
            return text

        return self._each(generate, requests, "completions", disable_tqdm)

    def _complete(self, context, options):
        options = normalize_gen_kwargs(options, DEFAULT_GENERATED_TOKENS)
        until, most, sampled = options.pop("until"), options.pop("max_gen_toks"), options.pop("do_sample")
        temperature = options.pop("temperature", 1.0 if sampled else 0.0)
        for name in options:
            if name not in SAMPLING:
                raise DexError(f"the platform has no {name!r} of the task's generation_kwargs; leave it out, or use one "
                               f"of until, max_gen_toks, do_sample, temperature, {', '.join(SAMPLING)}")
        room = self.max_length - most
        if room < 1:
            raise DexError(f"max_gen_toks={most} leaves no room for a prompt in the {self.max_length} tokens of "
                           f"{self._served.base}; ask for less with --gen_kwargs max_gen_toks=N")
        ids = (self.tok_encode(context) or [self.prefix_token_id])[-room:]
        special = self.tokenizer.get_added_vocab()
        stops = [stop for stop in until if stop and stop not in special and len(stop.encode()) <= LONGEST_STOP_BYTES]
        # The server's stops save time, the cut below decides: also by those that were too many or too long for it.
        made = self._platform.generate(
            self._served, ids, max_tokens=most, temperature=temperature, stop=stops[:MOST_STOPS],
            stop_token_ids=[special[stop] for stop in until if stop in special], **options)
        # Decoded here and not by the server, so that half a character looks as it does with transformers.
        return postprocess_generated_text(self.tokenizer.decode(made, skip_special_tokens=True), until, None)

    def _each(self, work, items, title, quiet):
        with concurrent.futures.ThreadPoolExecutor(self._in_flight) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                return [future.result() for future in tqdm(futures, desc=f"dex: {title}", disable=quiet)]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _refuse_unknown(unknown):
    known = [name for name, parameter in inspect.signature(DexLM.__init__).parameters.items()
             if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "known are model, tokenizer, server, max_length, timeout_seconds"
        raise DexError(f"--model_args has no {name!r}; {hint}")


def _requests_at_once(batch_size):
    if str(batch_size).startswith("auto"):
        return REQUESTS_AT_ONCE
    try:
        number = int(batch_size)
    except ValueError:
        number = 0
    if number < 1:
        raise DexError(f"--batch_size must be a whole number of at least 1, or auto, got {batch_size!r}")
    return number


def _load_tokenizer(folder, served):
    way_out = f"give tokenizer= the folder of {served.base}: the one that the platform's models.json names, or a copy"
    if not folder:
        raise DexError(f"tokenizer= is missing; {way_out}")
    file = pathlib.Path(str(folder)) / "tokenizer.json"
    if not file.is_file():
        raise DexError(f"{file} is missing; {way_out}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != served.tokenizer_sha256:
        raise DexError(f"{file} is not the tokenizer that {served.base} is served with (sha256 {digest[:12]}…, there "
                       f"{served.tokenizer_sha256[:12]}…); {way_out}")
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def _no_token(context, continuation):
    return DexError(f"the continuation {continuation!r} after {context[-40:]!r} adds no token of its own, so there is "
                    "nothing to score; let the task's choices be whole words with their blank before them")
