"""A tiny Llama of random weights in Hugging Face format: `tiny_llama.py FOLDER`. Nothing is downloaded.

1.5 million parameters, a byte-level BPE tokenizer of 2048 tokens trained on text made up here, a chat template. What it
says is nonsense, and it practically never ends a text by itself; an engine doesn't care, and is loaded by it in seconds.
The same folder comes out each time, given the same versions of `tokenizers`, `numpy` and `safetensors`.
"""

import json
import pathlib
import random
import sys

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HIDDEN, LAYERS, HEADS, KV_HEADS = 128, 4, 4, 2
HEAD, INNER = HIDDEN // HEADS, 4 * HIDDEN
VOCABULARY, POSITIONS = 2048, 4096
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def sentences():
    """Made-up text with a few common words, enough for the tokenizer to find 2048 pieces."""
    chance = random.Random(0)
    syllables = [a + b + c for a in "bcdfghjklmnprstvwz" for b in "aeiou" for c in ("", "n", "r", "s", "t", "l")]
    rare = ["".join(chance.choices(syllables, k=chance.randint(1, 3))) for _ in range(4000)]
    common = "the a of to and in is was for on that with as at by from it be this are or an what how why say".split()
    for _ in range(6000):
        words = (chance.choice(common if chance.random() < 0.5 else rare) for _ in range(chance.randint(4, 20)))
        yield " ".join(words).capitalize() + chance.choice(".?!\n")


def tokenizer():
    made = Tokenizer(models.BPE(unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        sentences(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    start = ("<s>", made.token_to_id("<s>"))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[start])
    return made


def weights():
    chance = numpy.random.default_rng(0)

    def noise(*shape):
        return (chance.standard_normal(shape, dtype=numpy.float32) * 0.05).astype(numpy.float16)

    def ones():
        return numpy.ones(HIDDEN, dtype=numpy.float16)

    table = {
        "model.embed_tokens.weight": noise(VOCABULARY, HIDDEN),
        "lm_head.weight": noise(VOCABULARY, HIDDEN),
        "model.norm.weight": ones(),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        table |= {
            at + "self_attn.q_proj.weight": noise(HIDDEN, HIDDEN),
            at + "self_attn.k_proj.weight": noise(KV_HEADS * HEAD, HIDDEN),
            at + "self_attn.v_proj.weight": noise(KV_HEADS * HEAD, HIDDEN),
            at + "self_attn.o_proj.weight": noise(HIDDEN, HIDDEN),
            at + "mlp.gate_proj.weight": noise(INNER, HIDDEN),
            at + "mlp.up_proj.weight": noise(INNER, HIDDEN),
            at + "mlp.down_proj.weight": noise(HIDDEN, INNER),
            at + "input_layernorm.weight": ones(),
            at + "post_attention_layernorm.weight": ones(),
        }
    return table


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    words = tokenizer()
    words.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    ends = {"bos_token_id": words.token_to_id("<s>"), "eos_token_id": words.token_to_id("</s>")}
    files = {
        "special_tokens_map.json": names,
        "generation_config.json": ends,
        "tokenizer_config.json": names
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": POSITIONS,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT,
        },
        "config.json": ends
        | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            "initializer_range": 0.02,
            "use_cache": True,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    save_file(weights(), str(folder / "model.safetensors"), metadata={"format": "pt"})


main()
