"""Small random models of the transformers library in folders, with tokenizers."""

import tokenizers
import torch
import transformers

TEXT = "The cat sat on the mat. The dog sat on the log, and the cat saw the dog. Naïve café, 42 dogs! " * 4


def byte_level(special=("<|endoftext|>",)):
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([TEXT], vocab_size=300, special_tokens=list(special), show_progress=False)
    return made


def save(folder, model, tokenizer=None, std=0.2):
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=std)
    model.eval().save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    return model


def word_piece():
    """A tokenizer as BERT has it."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "on", "mat", "a", "##s", ".", "<b>"]
    made = tokenizers.BertWordPieceTokenizer({word: n for n, word in enumerate(words)})
    made.add_special_tokens(["[MASK]", "[CLS]", "[SEP]", "[PAD]"])
    return made


def masked(folder):
    config = transformers.BertConfig(vocab_size=15, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                     num_attention_heads=4, max_position_embeddings=32)  # fmt: skip
    return save(folder, transformers.BertForMaskedLM(config), word_piece())


def classifier(folder):
    config = transformers.BertConfig(vocab_size=15, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_labels=3,
                                     num_attention_heads=4, max_position_embeddings=32, id2label={0: "bad", 1: "so <b>", 2: "good"},
                                     label2id={"bad": 0, "so <b>": 1, "good": 2})  # fmt: skip
    return save(folder, transformers.BertForSequenceClassification(config), word_piece())


def pair(folder):
    """An encoder and a decoder."""
    tokenizer = byte_level(("<pad>", "</s>"))
    config = transformers.T5Config(vocab_size=300, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
                                   decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, attn_implementation="eager")  # fmt: skip
    return save(folder, transformers.T5ForConditionalGeneration(config), tokenizer, std=0.3)


def whisper(folder):
    config = transformers.WhisperConfig(vocab_size=300, num_mel_bins=80, encoder_layers=1, encoder_attention_heads=2, decoder_layers=1,
                                        decoder_attention_heads=2, d_model=16, encoder_ffn_dim=24, decoder_ffn_dim=24,
                                        max_source_positions=50, max_target_positions=24, bos_token_id=0, eos_token_id=0,
                                        pad_token_id=0, decoder_start_token_id=1, suppress_tokens=None,
                                        begin_suppress_tokens=None)  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=1, eos_token_id=0, pad_token_id=0, bos_token_id=0)
    return save(folder, model, byte_level())
