"""TRL's GRPOTrainer on the weights, prompts and rewards of a mini-run; see `studies.minirun_speed` for its settings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from statistics import mean, median
from typing import Any

import click
import numpy as np
import torch

from simulators.minirun.generation import Rollouts
from simulators.minirun.model import Transformer
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.base import EOS, SYMBOLS, Prompts, decode
from studies.minirun_speed import AGREE, KINDS, WARM_UP, Calls, Loop, clock


def gpt2(policy: Transformer) -> Any:
    """Copy the weights into a GPT2LMHeadModel."""
    from transformers import GPT2Config, GPT2LMHeadModel  # type: ignore[import-not-found]

    size = policy.size
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(SYMBOLS),
            n_positions=len(policy.positions.weight),
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            n_inner=4 * size.width,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=EOS,
            eos_token_id=EOS,
            pad_token_id=EOS,
            tie_word_embeddings=False,
        )
    )
    own = {
        "transformer.wte": policy.symbols.weight,
        "transformer.wpe": policy.positions.weight,
        "transformer.ln_f": policy.norm,
        "lm_head": policy.head.weight,
    }
    for index, block in enumerate(policy._layers()):
        at = f"transformer.h.{index}"
        own |= {f"{at}.ln_1": block.norms[0], f"{at}.ln_2": block.norms[1]}
        own |= {f"{at}.attn.c_attn": block.qkv.weight.T, f"{at}.attn.c_proj": block.mix.weight.T}
        own |= {f"{at}.mlp.c_fc": block.up.weight.T, f"{at}.mlp.c_proj": block.down.weight.T}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            where, _, what = name.rpartition(".")
            parameter.copy_(own[where] if what == "weight" else torch.zeros_like(parameter))
    return model


@torch.no_grad()
def gpt2_disagreement(model: Any, rollouts: Rollouts) -> float:
    """Largest difference of log-probability between the copy and the policy that sampled."""
    groups, before = rollouts.tokens.shape[1], rollouts.prompts.shape[1]
    whole = torch.cat([rollouts.prompts[:, None].expand(-1, groups, -1), rollouts.tokens], -1)
    sequences = whole.flatten(0, 1)
    logits = model(sequences, attention_mask=torch.ones_like(sequences)).logits
    logs = logits.log_softmax(-1).unflatten(0, whole.shape[:2])
    logp = logs[:, :, before - 1 : -1].gather(-1, rollouts.tokens[..., None])[..., 0]
    return float((logp - rollouts.logp)[rollouts.mask].abs().max())


def tokeniser() -> Any:
    """One token per symbol, as our tasks have it."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: token for token, symbol in enumerate(SYMBOLS)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SYMBOLS[EOS]))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    end = SYMBOLS[EOS]
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, pad_token=end)


def trl_updates(loop: Loop, repeats: int) -> tuple[dict[str, list[float]], float, list[float]]:
    """Train with TRL's GRPOTrainer from the weights of `loop`, on prompts of its pool.

    Returns
    -------
    seconds : dict of lists
        Of each counted update: whole, within ``_generate_and_score_completions``, and within ``generate``.
    tokens : float
        Mean response tokens of an update.
    rewards : list of float
        Mean reward of each counted update.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    from datasets import Dataset  # type: ignore[import-not-found]
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    settings, task, device = loop.settings, loop.task, loop.settings.device
    knobs, pool = settings.recipe, loop.pool
    model = gpt2(loop.policy).to(device)
    apart = gpt2_disagreement(model, loop.rollouts())
    if apart > AGREE:
        raise click.ClickException(
            f"GPT-2 with our weights is another model: log-probabilities {apart} apart"
        )
    seconds: dict[str, list[float]] = {"whole": [], "collecting": [], "generation": []}
    ends: list[float] = []
    threads = torch.get_num_threads()
    lengths: list[int] = []
    rewards: list[float] = []

    def verified(completion_ids: list[list[int]], index: list[int], **others: object) -> list[float]:
        if len(index) != knobs.prompts * knobs.rollouts or len(set(index)) != knobs.prompts:
            raise click.ClickException(
                f"TRL made a batch of {len(index)} rollouts of {len(set(index))} prompts"
            )
        padded = np.full((len(index), 1, task.answer_length), EOS)
        for row, tokens in zip(padded, completion_ids, strict=True):
            row[0, : len(tokens)] = tokens
        # A response that TRL cut off has all its tokens: none of them is EOS, and the verifier sees that.
        right = task.verify(pool[np.asarray(index)], padded)[:, 0]
        if torch.get_num_threads() != threads:
            raise click.ClickException(f"TRL uses {torch.get_num_threads()} threads")
        lengths.append(sum(len(tokens) for tokens in completion_ids))
        rewards.append(float(right.mean()))
        return [float(each) for each in right]

    def timed(key: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named_: Any) -> Any:
            begun = clock(device)
            found = work(*arguments, **named_)
            seconds[key].append(clock(device) - begun)
            return found

        return call

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(clock(device))

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=verified,
            args=_trl_settings(GRPOConfig, folder, settings, task.answer_length, WARM_UP + repeats),
            train_dataset=Dataset.from_list(_rows(pool)),
            processing_class=tokeniser(),
            callbacks=[Ends()],
        )
        trainer._generate_and_score_completions = timed("collecting", trainer._generate_and_score_completions)
        model.generate = timed("generation", model.generate)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    whole = [after - before for before, after in pairwise(ends)][WARM_UP - 1 :]
    counted = {key: values[WARM_UP:] for key, values in seconds.items()} | {"whole": whole}
    return counted, mean(lengths[WARM_UP:]), rewards[WARM_UP:]


def _rows(pool: Prompts) -> list[dict[str, Any]]:
    return [{"prompt": decode(tokens), "index": index} for index, tokens in enumerate(pool.tokens)]


def _trl_settings(kind: Any, folder: str, settings: RunSettings, longest: int, steps: int) -> Any:
    knobs = settings.recipe
    return kind(
        output_dir=folder,
        use_cpu=torch.device(settings.device).type == "cpu",
        seed=settings.seed,
        max_steps=steps,
        per_device_train_batch_size=knobs.prompts * knobs.rollouts,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_iterations=1,
        num_generations=knobs.rollouts,
        max_completion_length=longest,
        temperature=knobs.temperature,
        top_p=1.0,
        top_k=0,
        loss_type="cispo",
        epsilon_high=knobs.ratio_cap,
        scale_rewards="group",
        beta=0.0,
        learning_rate=knobs.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=knobs.warmup,
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=0.99,
        weight_decay=0.0,
        max_grad_norm=knobs.clip_norm,
        bf16=False,
        fp16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_vllm=False,
    )


def trl_table(calls: Calls, loop: Loop, repeats: int) -> str:
    """TRL's updates beside ours and plain ones, as Markdown."""
    found, tokens, rewards = trl_updates(loop, repeats)
    lines = [
        "| trainer | update, ms | fastest | generation and verification, ms | rest, ms | updates / s | response tokens / s | times slower |",
        "|---" * 8 + "|",
    ]
    ours = median(each.seconds for each in calls["whole update"]["ours"])

    def line(name: str, whole: list[float], collecting: list[float], count: float) -> str:
        rest = [all_ - part for all_, part in zip(whole, collecting, strict=True)]
        middle = median(whole)
        return (
            f"| {name} | {1e3 * middle:.1f} | {1e3 * min(whole):.1f} | {1e3 * median(collecting):.1f} "
            f"| {1e3 * median(rest):.1f} | {1 / middle:.2f} | {count / middle:,.0f} | {middle / ours:.2f} |"
        )

    for name in KINDS:
        whole, collecting = (
            [each.seconds for each in calls[part][name]] for part in ("whole update", "collecting")
        )
        lines.append(line(name, whole, collecting, mean(each.tokens for each in calls["whole update"][name])))
    lines.append(line(f"TRL {version('trl')}", found["whole"], found["collecting"], tokens))
    return "\n".join(
        [
            *lines,
            "",
            f"TRL: {1e3 * median(found['generation']):.1f} ms of an update in transformers' `generate`; "
            f"{tokens:.0f} response tokens per update; mean reward {mean(rewards[:10]):.3f} in the first 10 counted updates, "
            f"{mean(rewards[-10:]):.3f} in the last 10.",
            f"trl {version('trl')}, transformers {version('transformers')}, accelerate {version('accelerate')}, "
            f"datasets {version('datasets')}.",
        ]
    )
