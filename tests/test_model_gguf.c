/* Configurations from GGUF metadata: what is read, what is left unsaid, what is
 * refused.  The files are written here: two layers of d_model 8, some keys
 * replaced; values that real files have are in test_model_golden.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/parts.h"
#include "model/config_parts.h"
#include "tests/test.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* Type numbers in a GGUF, written out once more so that the reader's are checked. */
enum { GGUF_U32_TYPE = 4, GGUF_I32_TYPE = 5, GGUF_F32_TYPE = 6, GGUF_BOOL_TYPE = 7, GGUF_STRING_TYPE = 8, GGUF_ARRAY_TYPE = 9 };

/* u32, f32, bool, string, a = array of i32, B = array of bool (one digit each), - = taken out */
struct kv { const char *key; char type; const char *text; };

static void put(struct buf *b, const void *v, size_t n)
{
    buf_put(b, v, n);
}

static void put_u32(struct buf *b, uint32_t v) { put(b, &v, 4); }
static void put_u64(struct buf *b, uint64_t v) { put(b, &v, 8); }

static void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_puts(b, s);
}

static void put_kv(struct buf *b, const struct kv *kv)
{
    float f = strtof(kv->text, NULL);
    put_str(b, kv->key);
    switch (kv->type) {
    case 'u': put_u32(b, GGUF_U32_TYPE); put_u32(b, (uint32_t)strtoul(kv->text, NULL, 10)); break;
    case 'f': put_u32(b, GGUF_F32_TYPE); put(b, &f, 4); break;
    case 'b': put_u32(b, GGUF_BOOL_TYPE); buf_putc(b, kv->text[0] == 't'); break;
    case 's': put_u32(b, GGUF_STRING_TYPE); put_str(b, kv->text); break;
    default:
        put_u32(b, GGUF_ARRAY_TYPE);
        put_u32(b, kv->type == 'a' ? GGUF_I32_TYPE : GGUF_BOOL_TYPE);
        put_u64(b, strlen(kv->text));
        for (const char *s = kv->text; *s; s++)
            kv->type == 'a' ? put_u32(b, (uint32_t)(*s - '0')) : buf_putc(b, *s == '1');
    }
}

/* Two layers of d_model 8, with `extra` keys in place of or after the base's; tensors: the embedding and one
 * more. */
static void put_gguf(struct buf *b, const char *arch, const struct kv *extra, int n_extra, const char *tensor,
                     uint64_t len)
{
    static const struct kv base[] = {{"block_count", 'u', "2"},
                                     {"context_length", 'u', "64"},
                                     {"embedding_length", 'u', "8"},
                                     {"feed_forward_length", 'u', "12"},
                                     {"attention.head_count", 'u', "2"},
                                     {"attention.head_count_kv", 'u', "1"},
                                     {"attention.layer_norm_rms_epsilon", 'f', "1e-6"}};
    struct kv all[32] = {{"general.architecture", 's', arch}};
    static char names[32][96];
    int n = 1;
    for (int i = 0; i < COUNT(base); i++) {
        bool replaced = false;
        snprintf(names[n], sizeof(names[n]), "%s.%s", arch, base[i].key);
        for (int k = 0; k < n_extra && extra[k].key; k++)
            replaced = replaced || strcmp(extra[k].key, base[i].key) == 0;
        if (!replaced) {
            all[n] = base[i];
            all[n].key = names[n];
            n++;
        }
    }
    for (int k = 0; k < n_extra && extra[k].key; k++)
        if (extra[k].type != '-') { /* '-' only takes the base's out */
            snprintf(names[n], sizeof(names[n]), "%s%s%s", strchr(extra[k].key, ' ') ? "" : arch,
                     strchr(extra[k].key, ' ') ? "" : ".",
                     extra[k].key + (strchr(extra[k].key, ' ') ? 1 : 0)); /* " key": as it is */
            all[n] = extra[k];
            all[n].key = names[n];
            n++;
        }
    buf_puts(b, "GGUF");
    put_u32(b, 3);
    put_u64(b, tensor ? 2 : 1);
    put_u64(b, (uint64_t)n);
    for (int i = 0; i < n; i++)
        put_kv(b, &all[i]);
    put_str(b, "token_embd.weight");
    put_u32(b, 2);
    put_u64(b, 8);
    put_u64(b, 4);
    put_u32(b, 0);
    put_u64(b, 0);
    if (tensor) {
        put_str(b, tensor);
        put_u32(b, 1);
        put_u64(b, len);
        put_u32(b, 0);
        put_u64(b, 128);
    }
    while (b->len % 32)
        buf_putc(b, 0);
    for (uint64_t i = 0; i < 32 + (tensor ? len : 0); i++) {
        float one = i < 32 ? 1 : 0; /* the second tensor is all zero */
        put(b, &one, 4);
    }
}

static int read_gguf(struct model_config *c, const char *arch, const struct kv *extra, int n_extra,
                     const char *tensor, uint64_t len, struct err *err)
{
    struct buf b;
    struct weights *w;
    buf_init(&b);
    put_gguf(&b, arch, extra, n_extra, tensor, len);
    *c = (struct model_config){0};
    err_clear(err);
    ck_assert_msg(weights_open_bytes(&w, "input", b.data, b.len, err) == 0, "%s", err->msg);
    int rc = config_load(c, w, NULL, err);
    weights_close(w);
    buf_fini(&b);
    return rc;
}

static const struct gguf_refusal {
    const char *arch;
    struct kv extra[4];
    const char *words[2], *tensor;
    uint64_t len;
} gguf_refusals[] = {
    {"zyzzyva", {{0}}, {"zyzzyva", "known are"}, NULL, 0},
    {"qwen3", {{"block_count", 'u', "0"}}, {"block_count", "0"}, NULL, 0},
    {"qwen3", {{"block_count", 'u', "1000000000"}}, {"block_count", "1024"}, NULL, 0},
    {"qwen3", {{"block_count", '-', ""}}, {"qwen3.block_count", "no key"}, NULL, 0},
    {"qwen3", {{"block_count", 's', "two"}}, {"qwen3.block_count", "input"}, NULL, 0},
    {"qwen3", {{"attention.layer_norm_rms_epsilon", '-', ""}}, {"layer_norm_rms_epsilon", "no key"}, NULL, 0},
    {"qwen3",
     {{"attention.layer_norm_rms_epsilon", 'f', "nan"}},
     {"layer_norm_rms_epsilon", "finite"},
     NULL,
     0},
    {"qwen3", {{"attention.head_count_kv", 'a', "12"}}, {"head_count_kv", "differs between layers"}, NULL, 0},
    {"qwen3", {{"attention.head_count_kv", 'a', ""}}, {"head_count_kv", "integer"}, NULL, 0},
    {"qwen3", {{"attention.head_count_kv", 'a', "00"}}, {"head_count_kv", "allowed"}, NULL, 0},
    {"qwen3",
     {{"attention.head_count", 'u', "3"}, {"attention.head_count_kv", 'u', "2"}},
     {"head_count_kv", "multiple"},
     NULL,
     0},
    {"qwen3", {{"attention.value_length", 'u', "2"}}, {"value_length", "key_length"}, NULL, 0},
    {"qwen3",
     {{"attention.key_length", 'u', "3"}, {"attention.value_length", 'u', "3"}},
     {"head_dim", "3"},
     NULL,
     0},
    {"qwen3", {{"attention.causal", 'b', "f"}}, {"causal", "false"}, NULL, 0},
    {"qwen3", {{"attention.sliding_window", 'u', "4"}}, {"sliding_window", "qwen3"}, NULL, 0},
    {"qwen3", {{"final_logit_softcapping", 'f', "30"}}, {"final_logit_softcapping", "qwen3"}, NULL, 0},
    {"qwen3", {{"attn_logit_softcapping", 'f', "50"}}, {"attn_logit_softcapping", "qwen3"}, NULL, 0},
    {"qwen3", {{"expert_count", 'u', "4"}}, {"expert_count", "qwen3"}, NULL, 0},
    {"qwen3", {{"pooling_type", 'u', "3"}}, {"pooling_type", "option"}, NULL, 0},
    {"llama", {{"logit_scale", 'f', "0.5"}}, {"logit_scale", "option"}, NULL, 0},
    {"llama", {{"rope.scaling.type", 's', "longrope"}}, {"longrope", "known are"}, NULL, 0},
    {"llama", {{"rope.scaling.type", 's', "llama3"}}, {"llama3", "known are"}, NULL, 0},
    {"llama", {{"rope.scaling.type", 's', "linear"}}, {"factor", "0"}, NULL, 0},
    {"llama", {{"rope.freq_base", 'f', "0"}}, {"rope.freq_base", "0"}, NULL, 0},
    {"llama", {{"rope.dimension_count", 'u', "6"}}, {"rotated", "6"}, NULL, 0},
    {"llama", {{0}}, {"rope_freqs.weight", "wanted are 2"}, "rope_freqs.weight", 3},
    {"llama", {{0}}, {"rope_freqs.weight", "value 0 is 0"}, "rope_freqs.weight", 2},
    {"phi3", {{0}}, {"rope_factors_long", "longrope"}, "rope_factors_long.weight", 2},
    {"gemma3",
     {{"attention.sliding_window", 'u', "4"}, {"attention.sliding_window_pattern", 'B', "101"}},
     {"pattern", "2 layers"},
     NULL,
     0},
    {"qwen3moe",
     {{"expert_count", 'u', "4"}, {"expert_gating_func", 'u', "2"}},
     {"expert_gating_func", "softmax"},
     NULL,
     0},
    {"qwen3moe",
     {{"expert_count", 'u', "4"}},
     {"expert_used_count", "0 of 4"},
     "blk.0.ffn_gate_inp.weight",
     8},
};

START_TEST(gguf_refused)
{
    const struct gguf_refusal *r = &gguf_refusals[_i];
    struct model_config c;
    struct err err;
    int rc = read_gguf(&c, r->arch, r->extra, COUNT(r->extra), r->tensor, r->len, &err);
    ck_assert_msg(rc < 0 && rc == err.code, "%s: %s was accepted", r->arch,
                  r->extra[0].key ? r->extra[0].key : r->tensor);
    ck_assert_msg(strncmp(err.msg, "input: ", 7) == 0, "%s", err.msg);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(err.msg, r->words[i]) != NULL, "no \"%s\" in: %s", r->words[i], err.msg);
    config_fini(&c);
}
END_TEST

START_TEST(gguf_values)
{
    struct model_config c;
    struct err err;
    const struct kv llama[] = {{"rope.scale_linear", 'f', "2"},
                               {"attention.sliding_window", 'u', "3"},
                               {" tokenizer.ggml.eos_token_id", 'u', "2"},
                               {" tokenizer.ggml.eot_token_id", 'u', "3"},
                               {"my_label", 'u', "9"},
                               {"attention.clamp_kqv", 'f', "0"},
                               {" general.name", 's', "a name"},
                               {"attention.head_count_kv", 'a', "11"}};
    ck_assert_msg(read_gguf(&c, "llama", llama, COUNT(llama), NULL, 0, &err) == 0, "%s", err.msg);
    ck_assert(c.pairs == OP_PAIRS_INTERLEAVED && c.tied && c.n_vocab == 4 && c.head_dim == 4 &&
              c.n_kv_heads == 1);
    ck_assert(c.layers[0].window == 3 && c.layers[1].window == 3 && c.n_eos == 2 && c.eos[1] == 3);
    ck_assert_int_eq(c.ropes[0].type, ROPE_LINEAR);
    ck_assert_double_eq(c.ropes[0].inv_freq[0], 0.5);
    ck_assert_str_eq(c.name, "a name");
    config_fini(&c);
    const struct kv gemma[] = {{"attention.sliding_window", 'u', "4"},
                               {"attention.sliding_window_pattern", 'B', "01"},
                               {"rope.freq_base", 'f', "1000000"},
                               {"rope.freq_base_swa", 'f', "20000"},
                               {"final_logit_softcapping", 'f', "30"}};
    ck_assert_msg(read_gguf(&c, "gemma3", gemma, COUNT(gemma), NULL, 0, &err) == 0, "%s", err.msg);
    ck_assert(c.layers[0].window == 0 && c.layers[1].window == 4 && !c.norm_add_one && c.post_norms &&
              c.logit_softcap == 30);
    ck_assert(c.layers[0].rope == 0 && c.layers[1].rope == 1 && c.ropes[1].theta == 20000 &&
              c.embed_scale == sqrtf(8));
    config_fini(&c);
    const struct kv period[] = {{"attention.sliding_window", 'u', "4"},
                                {"attention.sliding_window_pattern", 'u', "2"},
                                {"attention.scale", 'f', "0.25"}};
    ck_assert_msg(read_gguf(&c, "gemma3", period, COUNT(period), NULL, 0, &err) == 0, "%s", err.msg);
    ck_assert(c.layers[0].window == 4 && c.layers[1].window == 0 && c.attn_scale == 0.25F);
    config_fini(&c);
    const struct kv big[] = {
        {"block_count", 'u', "62"}}; /* the 27B: divides by the root of d_model / n_heads */
    ck_assert_msg(read_gguf(&c, "gemma3", big, COUNT(big), NULL, 0, &err) == 0, "%s", err.msg);
    ck_assert(c.attn_scale == 0.5F);
    config_fini(&c);
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

/* End tokens by key and by name; what a folder says in generation_config.json. */
START_TEST(gguf_ends)
{
    struct model_config c;
    struct err err;
    ck_assert_msg(load(&c, "golden/containers/gguf/qwen3-bf16.gguf", NULL, &err) == 0, "%s", err.msg);
    ck_assert(c.n_eos == 2 && c.eos[0] == 588 && c.eos[1] == 586);
    ck_assert_str_eq(c.name, "qwen3 tiny random");
    config_fini(&c);
    ck_assert_msg(load(&c, "golden/containers/gguf/llama3-rope-bf16.gguf", NULL, &err) == 0, "%s", err.msg);
    ck_assert_ptr_nonnull(c.ropes[0].freq_factors);
    ck_assert_double_eq_tol(c.ropes[0].inv_freq[3], 0.010674637535720701, 1e-9);
    config_fini(&c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model gguf");
    TCase *tc = tcase_create("config");
    tcase_add_loop_test(tc, gguf_refused, 0, COUNT(gguf_refusals));
    tcase_add_test(tc, gguf_values);
    tcase_add_test(tc, gguf_ends);
    suite_add_tcase(s, tc);
    return test_main(s);
}
