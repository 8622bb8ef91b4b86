/* Text models with random weights and a token per letter: a decoder, an encoder with a decoder, and an encoder that fills masks. */
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {writeTensors} from './files.mjs';

export const heads = 2, layers = 2;
const width = 16, vocabulary = 29;

/* Numbers that look random, the same in every run. */
function createNumbers() {
  let state = 12345;
  return (count, size) => Array.from({length: count}, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 31 - 1) * size;
  });
}

/* `more`: special tokens beside <i>, by name. */
function writeModel(folder, config, tensors, more = {}) {
  mkdirSync(folder, {recursive: true});
  const letters = Array.from({length: 26}, (_, n) => [String.fromCharCode(97 + n), n]);
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({version: '1.0',
    added_tokens: Object.entries({'<i>': 27, ...more}).map(([content, id]) => ({id, content, special: true, single_word: false,
      lstrip: false, rstrip: false, normalized: false})),
    pre_tokenizer: {type: 'ByteLevel', add_prefix_space: false, use_regex: false}, decoder: {type: 'ByteLevel'},
    post_processor: {type: 'TemplateProcessing', single: [{SpecialToken: {id: '<i>', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}}],
      pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
      special_tokens: {'<i>': {id: '<i>', ids: [27], tokens: ['<i>']}}},
    model: {type: 'BPE', merges: [], vocab: Object.fromEntries([...letters, ['\u0120', 26], ['<i>', 27], ...Object.entries(more)])}}));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeTensors(join(folder, 'model.safetensors'), tensors);
}

/* {name: {shape, numbers}} of names with their shapes; vectors are gains. */
function randomTensors(shapes) {
  const numbers = createNumbers(), sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name,
    {shape, numbers: shape.length === 1 ? new Array(shape[0]).fill(1) : numbers(sizeOf(shape), 0.5)}]));
}

function decoderShapes() {
  const shapes = {'model.embed_tokens.weight': [vocabulary, width], 'model.norm.weight': [width],
    'lm_head.weight': [vocabulary, width]};
  for (let l = 0; l < layers; l++) {
    const at = `model.layers.${l}.`;
    for (const name of ['q_proj', 'k_proj', 'v_proj', 'o_proj']) shapes[`${at}self_attn.${name}.weight`] = [width, width];
    Object.assign(shapes, {[`${at}input_layernorm.weight`]: [width], [`${at}post_attention_layernorm.weight`]: [width],
      [`${at}mlp.gate_proj.weight`]: [24, width], [`${at}mlp.up_proj.weight`]: [24, width], [`${at}mlp.down_proj.weight`]: [width, 24]});
  }
  return shapes;
}

function pairShapes() {
  const shapes = {'shared.weight': [vocabulary, width]};
  for (const stack of ['encoder', 'decoder']) {
    const parts = stack === 'encoder' ? ['SelfAttention'] : ['SelfAttention', 'EncDecAttention'];
    parts.forEach((part, n) => {
      for (const name of ['q', 'k', 'v', 'o']) shapes[`${stack}.block.0.layer.${n}.${part}.${name}.weight`] = [width, width];
      shapes[`${stack}.block.0.layer.${n}.layer_norm.weight`] = [width];
    });
    const mlp = `${stack}.block.0.layer.${parts.length}`;
    Object.assign(shapes, {[`${stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight`]: [8, heads],
      [`${mlp}.DenseReluDense.wi.weight`]: [24, width], [`${mlp}.DenseReluDense.wo.weight`]: [width, 24],
      [`${mlp}.layer_norm.weight`]: [width], [`${stack}.final_layer_norm.weight`]: [width]});
  }
  return shapes;
}

function encoderShapes() {
  const shapes = {'bert.embeddings.word_embeddings.weight': [vocabulary, width], 'bert.embeddings.position_embeddings.weight': [64, width],
    'bert.embeddings.token_type_embeddings.weight': [2, width], 'cls.predictions.bias': [vocabulary]};
  const linear = (name, rows, columns) => Object.assign(shapes, {[`${name}.weight`]: [rows, columns], [`${name}.bias`]: [rows]});
  const norm = (name) => Object.assign(shapes, {[`${name}.LayerNorm.weight`]: [width], [`${name}.LayerNorm.bias`]: [width]});
  norm('bert.embeddings');
  norm('cls.predictions.transform');
  linear('cls.predictions.transform.dense', width, width);
  for (let l = 0; l < layers; l++) {
    const at = `bert.encoder.layer.${l}`;
    for (const name of ['query', 'key', 'value']) linear(`${at}.attention.self.${name}`, width, width);
    linear(`${at}.attention.output.dense`, width, width);
    linear(`${at}.intermediate.dense`, 24, width);
    linear(`${at}.output.dense`, width, 24);
    norm(`${at}.attention.output`);
    norm(`${at}.output`);
  }
  return shapes;
}

/* The models `letters`, `letter-pairs` and `letter-masks`. */
export function writeTextModels(folder) {
  writeModel(join(folder, 'letters'), {architectures: ['LlamaForCausalLM'], model_type: 'llama', vocab_size: vocabulary,
    hidden_size: width, num_hidden_layers: layers, num_attention_heads: heads, intermediate_size: 24,
    max_position_embeddings: 256, rms_norm_eps: 1e-6}, randomTensors(decoderShapes()));
  writeModel(join(folder, 'letter-pairs'), {architectures: ['T5ForConditionalGeneration'], model_type: 't5', d_ff: 24, d_kv: 8,
    d_model: width, decoder_start_token_id: 28, eos_token_id: 27, feed_forward_proj: 'relu', dense_act_fn: 'relu',
    is_gated_act: false, is_encoder_decoder: true, layer_norm_epsilon: 1e-6, num_decoder_layers: 1, num_heads: heads,
    num_layers: 1, pad_token_id: 28, relative_attention_max_distance: 12, relative_attention_num_buckets: 8,
    tie_word_embeddings: true, vocab_size: vocabulary}, randomTensors(pairShapes()));
  writeModel(join(folder, 'letter-masks'), {architectures: ['BertForMaskedLM'], model_type: 'bert', vocab_size: vocabulary, hidden_size: width,
    num_hidden_layers: layers, num_attention_heads: heads, intermediate_size: 24, max_position_embeddings: 64, type_vocab_size: 2,
    hidden_act: 'gelu', layer_norm_eps: 1e-12, tie_word_embeddings: true}, randomTensors(encoderShapes()), {'[MASK]': 28});
}
