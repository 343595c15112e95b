/* Configurations: every source, the defaults of each family, which options are
 * run and which refused, rotary frequencies against the formulas.  Most cases are
 * a golden config.json with a few keys replaced. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_parts.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* ---- config.json ---- */

static void replace(cJSON *o, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    if (strcmp(value, "-") == 0) /* only taken out */
        return;
    cJSON *item = cJSON_Parse(value);
    ck_assert_msg(item != NULL, "%s: %s", key, value);
    cJSON_AddItemToObject(o, key, item);
}

/* golden/models/NAME/config.json with up to three keys replaced; "text_config" wraps it. */
static int read_patched(struct model_config *c, const char *model, const char *const patch[3][2],
                        struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "golden/models/%s/config.json", model);
    cJSON *o = test_json(path);
    for (int i = 0; i < 3 && patch[i][0]; i++)
        replace(o, patch[i][0], patch[i][1]);
    *c = (struct model_config){0};
    err_clear(err);
    int rc = config_from_object(c, o, "input", err);
    cJSON_Delete(o);
    return rc;
}

static const struct json_refusal {
    const char *model, *patch[3][2], *words[2];
} json_refusals[] = {
    /* kinds of model */
    {"qwen3",
     {{"architectures", "[\"Qwen3ForSequenceClassification\"]"}},
     {"Qwen3ForSequenceClassification", "known are qwen3"}},
    {"qwen3", {{"architectures", "[]"}, {"model_type", "\"bert\""}}, {"bert", "gemma3"}},
    {"qwen3", {{"architectures", "-"}, {"model_type", "-"}}, {"architectures", "model_type"}},
    {"qwen3", {{"architectures", "\"x\""}}, {"architectures", "list"}},
    {"qwen3", {{"architectures", "[1]"}}, {"architectures", "list"}},
    {"qwen3", {{"model_type", "\"llama\""}}, {"Qwen3ForCausalLM", "llama"}},
    {"qwen3", {{"model_type", "7"}}, {"model_type", "string"}},
    {"qwen3", {{"text_config", "{\"hidden_size\": 3}"}}, {"text_config", "qwen3"}},
    {"qwen3",
     {{"architectures", "[\"Gemma3ForConditionalGeneration\"]"}, {"model_type", "\"gemma3\""}},
     {"text_config", "Gemma3"}},
    {"qwen3",
     {{"architectures", "[\"Gemma3ForConditionalGeneration\"]"},
      {"model_type", "\"gemma3\""},
      {"text_config", "{\"model_type\": \"gemma4_text\"}"}},
     {"gemma4_text", "known"}},
    {"qwen3",
     {{"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"}},
     {"gptq", "quantization_config"}},
    {"qwen3", {{"quantization_config", "{}"}}, {"unnamed", "quantization_config"}},
    {"qwen3",
     {{"compression_config", "{\"quant_method\": \"compressed-tensors\"}"}},
     {"compressed-tensors", "compression_config"}},
    /* sizes */
    {"qwen3", {{"num_hidden_layers", "0"}}, {"num_hidden_layers", "0"}},
    {"qwen3", {{"num_hidden_layers", "1000000000"}}, {"num_hidden_layers", "1024"}},
    {"qwen3", {{"num_hidden_layers", "null"}}, {"num_hidden_layers", "no "}},
    {"qwen3", {{"hidden_size", "64.5"}}, {"hidden_size", "integer"}},
    {"qwen3", {{"hidden_size", "\"64\""}}, {"hidden_size", "integer"}},
    {"qwen3", {{"hidden_size", "2000000"}}, {"d_model", "1048576"}},
    {"qwen3", {{"intermediate_size", "-"}}, {"intermediate_size", "no "}},
    {"qwen3", {{"vocab_size", "-3"}}, {"vocab_size", "-3"}},
    {"qwen3", {{"num_attention_heads", "5"}}, {"num_key_value_heads", "5"}},
    {"qwen3", {{"head_dim", "31"}}, {"head_dim", "31"}},
    {"qwen3",
     {{"num_attention_heads", "16384"}, {"head_dim", "16384"}, {"num_key_value_heads", "1"}},
     {"2^24", "16384"}},
    {"qwen3", {{"rms_norm_eps", "-1"}}, {"epsilon", "-1"}},
    {"qwen3", {{"rms_norm_eps", "\"x\""}}, {"rms_norm_eps", "number"}},
    {"gemma3", {{"query_pre_attn_scalar", "0"}}, {"query_pre_attn_scalar", "0"}},
    {"gemma3", {{"final_logit_softcapping", "-2"}}, {"cap", "-2"}},
    /* options that change the mathematics */
    {"qwen3", {{"hidden_act", "\"relu\""}}, {"hidden_act", "relu"}},
    {"qwen3", {{"attn_logit_softcapping", "50.0"}}, {"attn_logit_softcapping", "50"}},
    {"llama", {{"final_logit_softcapping", "30.0"}}, {"final_logit_softcapping", "llama"}},
    {"llama", {{"residual_multiplier", "0.22"}}, {"residual_multiplier", "0.22"}},
    {"llama", {{"logits_scaling", "8.0"}}, {"logits_scaling", "8"}},
    {"llama", {{"embedding_multiplier", "12.0"}}, {"embedding_multiplier", "12"}},
    {"llama", {{"attention_multiplier", "0.1"}}, {"attention_multiplier", "0.1"}},
    {"llama", {{"partial_rotary_factor", "0.5"}}, {"partial_rotary_factor", "llama"}},
    {"llama", {{"clip_qkv", "8.0"}}, {"clip_qkv", "8"}},
    {"llama", {{"alibi", "true"}}, {"alibi", "true"}},
    {"llama", {{"qk_layernorm", "true"}}, {"qk_layernorm", "llama"}},
    {"llama", {{"num_nextn_predict_layers", "1"}}, {"num_nextn_predict_layers", "1"}},
    {"llama", {{"rope_interleaved", "true"}}, {"rope_interleaved", "true"}},
    {"llama", {{"sliding_window", "8"}}, {"sliding_window", "8"}},
    {"mistral", {{"attention_bias", "true"}}, {"attention_bias", "mistral"}},
    {"gemma3", {{"use_bidirectional_attention", "true"}}, {"use_bidirectional_attention", "true"}},
    {"llama", {{"num_local_experts", "8"}}, {"num_local_experts", "8"}},
    {"phi3", {{"partial_rotary_factor", "1.5"}}, {"partial_rotary_factor", "1.5"}},
    {"phi3", {{"partial_rotary_factor", "0.01"}}, {"rotated", "0"}},
    /* layers */
    {"qwen3",
     {{"layer_types", "[\"full_attention\", \"sliding_attention\", \"full_attention\"]"}},
     {"layer_types[1]", "sliding_window"}},
    {"qwen3", {{"layer_types", "[\"full_attention\"]"}}, {"layer_types", "3"}},
    {"qwen3", {{"layer_types", "[1, 2, 3]"}}, {"layer_types[0]", "known"}},
    {"qwen3", {{"use_sliding_window", "1"}}, {"use_sliding_window", "true or false"}},
    {"gemma3", {{"layer_types", "-"}, {"_sliding_window_pattern", "0"}}, {"_sliding_window_pattern", "0"}},
    {"qwen3-moe", {{"num_experts_per_tok", "7"}}, {"num_experts_per_tok", "7 of 6"}},
    {"qwen3-moe", {{"mlp_only_layers", "3"}}, {"mlp_only_layers", "list"}},
    {"qwen3-moe", {{"mlp_only_layers", "[\"1\"]"}}, {"mlp_only_layers", "numbers"}},
    {"qwen3-moe", {{"moe_intermediate_size", "-"}}, {"moe_intermediate_size", "0"}},
    /* rope */
    {"qwen3", {{"rope_theta", "0"}}, {"rope_theta", "0"}},
    {"qwen3", {{"rope_theta", "\"x\""}}, {"rope_theta", "number"}},
    {"qwen3", {{"rope_scaling", "{\"rope_type\": \"longrope\"}"}}, {"longrope", "known are"}},
    {"qwen3", {{"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2.0}"}}, {"dynamic", "known are"}},
    {"qwen3", {{"rope_scaling", "{\"type\": 4}"}}, {"type", "string"}},
    {"qwen3", {{"rope_scaling", "[1]"}}, {"rope_scaling", "object"}},
    {"qwen3", {{"rope_scaling", "{\"rope_type\": \"linear\"}"}}, {"factor", "0"}},
    {"qwen3",
     {{"rope_scaling", "{\"rope_type\": \"default\", \"mrope_section\": [1, 2]}"}},
     {"mrope_section", "rope_scaling"}},
    {"qwen3",
     {{"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}"}},
     {"low_freq_factor", "high_freq_factor"}},
    {"qwen3",
     {{"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": -2}"}},
     {"beta_fast", "-2"}},
    {"qwen3",
     {{"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 0}"}},
     {"attention_factor", "0"}},
    {"qwen3",
     {{"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 0}"}},
     {"original_max", "0"}},
    {"qwen3",
     {{"rope_parameters", "{\"full_attention\": {\"rope_theta\": 5.0}}"}},
     {"rope_parameters", "qwen3"}},
    /* ids */
    {"qwen3", {{"eos_token_id", "\"x\""}}, {"eos_token_id", "list of ids"}},
    {"qwen3", {{"eos_token_id", "[1.5]"}}, {"eos_token_id", "list of ids"}},
    {"qwen3", {{"eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"}}, {"eos_token_id", "16"}},
    {"qwen3", {{"bos_token_id", "1e12"}}, {"bos_token_id", "allowed"}},
};

START_TEST(json_refused)
{
    const struct json_refusal *r = &json_refusals[_i];
    struct model_config c;
    struct err err;
    int rc = read_patched(&c, r->model, r->patch, &err);
    ck_assert_msg(rc < 0 && rc == err.code, "%s with %s = %s was accepted", r->model, r->patch[0][0],
                  r->patch[0][1]);
    ck_assert_msg(strncmp(err.msg, "input: ", 7) == 0, "%s", err.msg);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(err.msg, r->words[i]) != NULL, "no \"%s\" in: %s", r->words[i], err.msg);
    config_fini(&c);
    rc = read_patched(&c, r->model, r->patch, NULL); /* the sentence is optional */
    ck_assert_int_lt(rc, 0);
    config_fini(&c);
}
END_TEST

/* What may be there, and one field to see that it was understood. */
#define FIELD(f) offsetof(struct model_config, f)
static const struct json_case {
    const char *model, *patch[3][2];
    size_t field;
    int64_t want;
} json_cases[] = {
    {"qwen3", {{"head_dim", "-"}}, FIELD(head_dim), 128}, /* the class's default, not hidden / heads */
    {"llama", {{"head_dim", "-"}}, FIELD(head_dim), 16},  /* hidden / heads */
    {"llama", {{"num_key_value_heads", "-"}}, FIELD(n_kv_heads), 4},
    {"llama", {{"max_position_embeddings", "-"}}, FIELD(n_ctx_max), 2048},
    {"llama", {{"hidden_size", "64.0"}}, FIELD(d_model), 64},
    {"llama", {{"architectures", "-"}}, FIELD(d_model), 64},
    {"llama", {{"model_type", "-"}}, FIELD(d_model), 64},
    {"llama",
     {{"unsloth_version", "\"2025.1\""}, {"my_label", "\"x\""}, {"attention_dropout", "0.1"}},
     FIELD(n_ff),
     96},
    {"llama",
     {{"residual_multiplier", "1.0"}, {"logits_scaling", "1"}, {"clip_qkv", "null"}},
     FIELD(n_ff),
     96},
    {"llama",
     {{"pretraining_tp", "2"}, {"layer_types", "null"}, {"rope_interleaved", "false"}},
     FIELD(n_ff),
     96},
    {"phi3", {{"partial_rotary_factor", "0.5"}}, FIELD(n_rot), 8},
    {"phi3",
     {{"rope_parameters", "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}"}},
     FIELD(n_rot),
     4},
    {"qwen3",
     {{"rope_scaling", "{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 512}"}},
     FIELD(n_ctx_max),
     2048},
};

START_TEST(json_accepted)
{
    const struct json_case *r = &json_cases[_i];
    struct model_config c;
    struct err err;
    ck_assert_msg(read_patched(&c, r->model, r->patch, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(*(int64_t *)(void *)((char *)&c + r->field), r->want);
    config_fini(&c);
}
END_TEST

/* The window of each layer. */
static const struct window_case {
    const char *model, *patch[3][2];
    int n_layers, windows[4];
} window_cases[] = {
    {"mistral", {{NULL, NULL}}, 2, {8, 8}},
    {"mistral", {{"sliding_window", "null"}}, 2, {0, 0}},
    {"mistral", {{"sliding_window", "-"}}, 2, {4096, 4096}}, /* the class's default */
    {"phi3", {{"sliding_window", "5"}}, 2, {5, 5}},
    {"phi3", {{"sliding_window", "-"}}, 2, {0, 0}},
    {"qwen3", {{"sliding_window", "4"}}, 3, {0, 0, 0}}, /* use_sliding_window is false */
    {"qwen3",
     {{"sliding_window", "4"}, {"use_sliding_window", "true"}, {"max_window_layers", "1"}},
     3,
     {0, 4, 4}},
    {"qwen2",
     {{"sliding_window", "4"}, {"use_sliding_window", "true"}, {"max_window_layers", "2"}},
     3,
     {0, 0, 4}},
    {"qwen3",
     {{"sliding_window", "4"},
      {"use_sliding_window", "true"},
      {"layer_types", "[\"sliding_attention\", \"full_attention\", \"full_attention\"]"}},
     3,
     {4, 0, 0}},
    {"qwen3-moe", {{"sliding_window", "4"}, {"use_sliding_window", "true"}}, 3, {4, 4, 4}},
    {"gemma3", {{NULL, NULL}}, 4, {8, 8, 0, 8}},
    {"gemma3", {{"layer_types", "-"}, {"_sliding_window_pattern", "2"}}, 4, {8, 0, 8, 0}},
    {"gemma3",
     {{"layer_types", "-"}, {"sliding_window_pattern", "3"}, {"_sliding_window_pattern", "-"}},
     4,
     {8, 8, 0, 8}},
};

START_TEST(windows)
{
    const struct window_case *r = &window_cases[_i];
    struct model_config c;
    struct err err;
    ck_assert_msg(read_patched(&c, r->model, r->patch, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(c.n_layers, r->n_layers);
    for (int l = 0; l < r->n_layers; l++) {
        ck_assert_msg(c.layers[l].window == r->windows[l], "%s, layer %d: %d", r->model, l,
                      c.layers[l].window);
        ck_assert_int_eq(c.groups[c.layers[l].kv_group].window, r->windows[l]);
        ck_assert_int_eq(c.layers[l].rope, c.n_ropes == 2 && r->windows[l] > 0);
    }
    config_fini(&c);
}
END_TEST

START_TEST(experts_by_layer)
{
    static const char *const patch[3][2] = {{"decoder_sparse_step", "2"}, {"mlp_only_layers", "[]"}};
    static const char *const none[3][2] = {{"num_experts", "0"}};
    struct model_config c;
    struct err err;
    ck_assert_msg(read_patched(&c, "qwen3-moe", patch, &err) == 0, "%s", err.msg);
    ck_assert(!c.layers[0].moe && c.layers[1].moe && !c.layers[2].moe);
    config_fini(&c);
    ck_assert_msg(read_patched(&c, "qwen3-moe", none, &err) == 0, "%s", err.msg);
    ck_assert(!c.layers[0].moe);
    config_fini(&c);
}
END_TEST

/* A wrapped text model that leaves out what its class knows, as the published ones do. */
START_TEST(gemma_wrapper)
{
    static const char text[] =
        "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\", "
        "\"eos_token_id\": [1, 106],"
        "\"mm_tokens_per_image\": 256, \"vision_config\": {\"hidden_size\": 1152}, \"text_config\": "
        "{\"hidden_size\": 2560,"
        "\"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34,"
        "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, \"sliding_window\": 1024}}";
    struct model_config c = {0};
    struct err err = {0};
    cJSON *o;
    json_parse(&o, text, sizeof(text) - 1, "input", &err);
    ck_assert_msg(o && config_from_object(&c, o, "input", &err) == 0, "%s", err.msg);
    ck_assert_int_eq(c.n_heads, 8);
    ck_assert_int_eq(c.n_kv_heads, 4);
    ck_assert_int_eq(c.head_dim, 256);
    ck_assert_int_eq(c.n_vocab, 262208);
    ck_assert_int_eq(c.n_ctx_max, 131072);
    ck_assert(c.tied && c.norm_add_one && c.post_norms && c.qk_norm);
    ck_assert_double_eq((double)c.attn_scale, 1.0 / 16);
    ck_assert_double_eq((double)c.embed_scale, (double)(float)sqrt(2560));
    ck_assert_int_eq(c.layers[5].window, 0);
    ck_assert_int_eq(c.layers[6].window, 1024);
    ck_assert_int_eq(c.layers[6].rope, 1);
    ck_assert_int_eq(c.ropes[0].type, ROPE_LINEAR);
    ck_assert_int_eq(c.ropes[1].type, ROPE_DEFAULT);
    ck_assert_double_eq(c.ropes[1].theta, 1e4);
    ck_assert_int_eq(c.n_eos, 2);
    cJSON_Delete(o);
    config_fini(&c);
}
END_TEST

/* rope_parameters of each kind of layer, as transformers 5 writes gemma3. */
START_TEST(gemma_nested_ropes)
{
    static const char *const patch[3][2] = {
        {"rope_theta", "-"},
        {"rope_local_base_freq", "-"},
        {"rope_parameters",
         "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8, \"rope_theta\": 2000000},"
         "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000}}"}};
    struct model_config c;
    struct err err;
    ck_assert_msg(read_patched(&c, "gemma3", patch, &err) == 0, "%s", err.msg);
    ck_assert_double_eq(c.ropes[0].theta, 2e6);
    ck_assert_double_eq(c.ropes[0].factor, 8);
    ck_assert_double_eq(c.ropes[1].theta, 2e4);
    ck_assert_double_eq_tol(c.ropes[0].inv_freq[1], pow(2e6, -2.0 / 40) / 8, 1e-15);
    ck_assert_double_eq_tol(c.ropes[1].inv_freq[1], pow(2e4, -2.0 / 40), 1e-15);
    config_fini(&c);
}
END_TEST

/* ---- rotary frequencies; the figures were computed by another program from the papers' formulas ---- */

START_TEST(rope_frequencies)
{
    static const struct { struct rope_config r; int64_t n_rot; int first; double want[4];
    } rows[] = {
        {{.theta = 5e5,
          .type = ROPE_LLAMA3,
          .factor = 8,
          .low_freq_factor = 1,
          .high_freq_factor = 4,
          .orig_ctx = 32},
         32,
         0,
         {1.0, 0.2146673579985814, 0.02424034309358572, 0.010674637535720701}},
        {{.theta = 1e6,
          .type = ROPE_YARN,
          .factor = 4,
          .beta_fast = 32,
          .beta_slow = 1,
          .truncate = true,
          .orig_ctx = 32768},
         128,
         22,
         {0.008659643233600654, 0.006978305848598663, 0.005375321490790102, 0.004131738022518394}},
        {{.theta = 1e6,
          .type = ROPE_YARN,
          .factor = 4,
          .beta_fast = 32,
          .beta_slow = 1,
          .truncate = true,
          .orig_ctx = 32768},
         128,
         38,
         {9.262301704129457e-05, 6.490394320837029e-05, 4.445698525097307e-05, 3.582531425592407e-05}},
        {{.theta = 1e4, .type = ROPE_LINEAR, .factor = 4}, 8, 0, {0.25, 0.025, 0.0025, 0.00025}},
        {{.theta = 1e4}, 8, 0, {1, 0.1, 0.01, 0.001}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct rope_config r = rows[i].r;
        ck_assert_int_eq(rope_settle(&r, rows[i].n_rot, NULL), 0);
        for (int k = 0; k < 4; k++)
            ck_assert_msg(fabs(r.inv_freq[rows[i].first + k] / rows[i].want[k] - 1) < 1e-12,
                          "row %d, pair %d: %.17g", i, rows[i].first + k, r.inv_freq[rows[i].first + k]);
        free(r.inv_freq);
    }
    ck_assert_double_eq_tol(rope_yarn_mscale(4, 1), 1.138629436111989, 1e-15);
    ck_assert_double_eq(rope_yarn_mscale(0.5, 1), 1);
}
END_TEST

/* Angles in double: a far position is as exact as a near one. */
START_TEST(rope_rows)
{
    struct model_config c;
    struct err err;
    static const char *const none[3][2] = {{NULL, NULL}};
    float row[32];
    ck_assert_msg(read_patched(&c, "qwen3", none, &err) == 0, "%s", err.msg);
    rope_row(&c, 0, 0, row);
    for (int i = 0; i < 16; i++)
        ck_assert(row[2 * i] == 1 && row[2 * i + 1] == 0);
    rope_row(&c, 0, 40000, row);
    ck_assert_double_eq((double)row[0], (double)(float)cos(40000.0));
    ck_assert_double_eq((double)row[1], (double)(float)sin(40000.0));
    ck_assert_double_eq((double)row[31], (double)(float)sin(40000.0 * pow(1e6, -30.0 / 32)));
    config_fini(&c);
}
END_TEST

/* ---- ids and sampling ---- */

START_TEST(generation)
{
    struct model_config c;
    struct weights *w;
    struct err err = {0};
    ck_assert_int_eq(weights_open(&w, test_path("golden/models/qwen2"), &err), 0);
    ck_assert_msg(config_load(&c, w, NULL, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(c.n_eos, 2); /* both files, each id once */
    ck_assert(c.eos[0] == 748 && c.eos[1] == 746);
    ck_assert_int_eq(c.bos, 746);
    ck_assert_double_eq(c.sampling.temp, 0.7);
    ck_assert_double_eq(c.sampling.top_p, 0.8);
    ck_assert_double_eq(c.sampling.repeat_penalty, 1.1);
    ck_assert_double_lt(c.sampling.min_p, 0);
    ck_assert_int_eq(c.sampling.top_k, 20);
    ck_assert_str_eq(c.name, "qwen2");
    config_fini(&c);
    weights_close(w);
}
END_TEST

START_TEST(generation_refused)
{
    static const struct { const char *text, *word; } rows[] = {
        {"[]", "object"}, {"{\"do_sample\": 1}", "do_sample"}, {"{\"temperature\": \"hot\"}", "temperature"},
        {"{\"top_k\": 0.5}", "top_k"}, {"{\"eos_token_id\": {}}", "eos_token_id"}};
    for (int i = 0; i < COUNT(rows); i++) {
        struct model_config c;
        struct err err = {0};
        config_start(&c, arch_at(0));
        cJSON *o;
        json_parse(&o, rows[i].text, strlen(rows[i].text), "input", &err);
        ck_assert_msg(config_from_generation(&c, o, "input", &err) < 0, "%s", rows[i].text);
        ck_assert_msg(strstr(err.msg, rows[i].word) != NULL, "%s: %s", rows[i].text, err.msg);
        cJSON_Delete(o);
        config_fini(&c);
    }
}
END_TEST

/* ---- presets and shapes ---- */

START_TEST(presets)
{
    char list[512], *save = NULL;
    struct model_config c = {0};
    struct err err = {0};
    config_preset_list(list, sizeof(list));
    int n = 0;
    for (char *s = strtok_r(list, ", ", &save); s; s = strtok_r(NULL, ", ", &save), n++) {
        ck_assert_msg(config_from_preset(&c, s, &err) == 1, "%s: %s", s, err.msg);
        config_fini(&c);
    }
    ck_assert_int_ge(n, 12);
    ck_assert_int_eq(config_from_preset(&c, "qwen3-0.6b", &err), 1);
    ck_assert(c.n_layers == 28 && c.d_model == 1024 && c.n_heads == 16 && c.n_kv_heads == 8 &&
              c.head_dim == 128 && c.n_ff == 3072 && c.n_vocab == 151936 && c.tied && c.qk_norm &&
              c.eos[0] == 151645 && c.n_eos == 2);
    ck_assert_uint_eq(config_kv_bytes_per_pos(&c, DTYPE_F32), 57344 * 4);
    config_fini(&c);
    ck_assert_int_eq(config_from_preset(&c, "qwen9", &err), 0);
    ck_assert_ptr_nonnull(strstr(config_arch_list(list, sizeof(list)), "qwen3_moe"));
    ck_assert_ptr_null(arch_by_name("zyzzyva"));
    ck_assert_str_eq(config_preset_list(list, 4), "qwe"); /* cut, never overrun */
    ck_assert_str_eq(config_arch_list(list, 4), "qwe");
}
END_TEST

static int load(struct model_config *c, const char *file, const char *config, struct err *err)
{
    struct weights *w;
    err_clear(err);
    ck_assert_msg(weights_open(&w, test_path(file), err) == 0, "%s", err->msg);
    int rc = config_load(c, w, config, err);
    weights_close(w);
    return rc;
}

START_TEST(book_shapes)
{
    struct model_config c;
    struct err err;
    ck_assert_msg(load(&c, "golden/containers/pth/qwen3-book/qwen3-tiny-base.pth", NULL, &err) == 0, "%s",
                  err.msg);
    ck_assert_str_eq(config_arch_name(&c), "qwen3");
    ck_assert(c.n_layers == 3 && c.d_model == 64 && c.n_heads == 4 && c.n_kv_heads == 2 && c.head_dim == 32 &&
              c.n_ff == 96);
    ck_assert(c.n_vocab == 640 && c.n_ctx_max == 32768 && c.n_eos == 0 && !c.tied && c.ropes[0].theta == 1e6);
    config_fini(&c);
}
END_TEST

START_TEST(config_argument)
{
    struct model_config c;
    struct err err;
    const char *book = "golden/containers/pth/qwen3-book/qwen3-tiny-base.pth";
    ck_assert_int_eq(load(&c, book, "no-such-preset", &err), ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "qwen3-0.6b"));
    config_fini(&c);
    ck_assert_msg(load(&c, book, test_path("golden/models/qwen3"), &err) == 0, "%s", err.msg); /* a folder */
    ck_assert_int_eq(c.n_eos, 2);
    config_fini(&c);
    ck_assert_msg(load(&c, book, test_path("golden/models/qwen3/config.json"), &err) == 0, "%s", err.msg);
    config_fini(&c);
    ck_assert_msg(load(&c, book, "qwen3-0.6b", &err) == 0, "%s",
                  err.msg); /* bind.c finds that the shapes differ */
    config_fini(&c);
    ck_assert_int_eq(load(&c, "golden/bad/files/ok.safetensors", NULL, &err), ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "name one as config"));
    config_fini(&c);
    ck_assert_int_eq(config_from_json(&c, "no/such/config.json", &err), ERR_IO); /* the code of what failed */
    config_fini(&c);
    /* never ignored */
    ck_assert_int_eq(load(&c, "golden/containers/gguf/qwen3-q8_0.gguf", "qwen3-0.6b", &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "q8_0.gguf") && strstr(err.msg, "qwen3-0.6b"), "%s", err.msg);
    config_fini(&c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model config");
    TCase *tc = tcase_create("json");
    tcase_add_loop_test(tc, json_refused, 0, COUNT(json_refusals));
    tcase_add_loop_test(tc, json_accepted, 0, COUNT(json_cases));
    tcase_add_loop_test(tc, windows, 0, COUNT(window_cases));
    tcase_add_test(tc, experts_by_layer);
    tcase_add_test(tc, gemma_wrapper);
    tcase_add_test(tc, gemma_nested_ropes);
    tcase_add_test(tc, rope_frequencies);
    tcase_add_test(tc, rope_rows);
    tcase_add_test(tc, generation);
    tcase_add_test(tc, generation_refused);
    suite_add_tcase(s, tc);
    tc = tcase_create("others");
    tcase_add_test(tc, presets);
    tcase_add_test(tc, book_shapes);
    tcase_add_test(tc, config_argument);
    suite_add_tcase(s, tc);
    return test_main(s);
}
