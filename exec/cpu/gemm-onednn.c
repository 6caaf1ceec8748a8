/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of bf16 factors by oneDNN, on processors that multiply bf16 themselves (AVX-512 BF16, AMX);
 * on others, widening the factors and calling OpenBLAS is as fast. Each thread makes one primitive
 * for each size that it needs, and keeps it. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/cpu/tiles.h"
#include "exec/kernels.h"

#include <dnnl.h>
#include <string.h>

/* Present where oneDNN uses OpenMP threads, as Debian's does. */
void omp_set_num_threads (int count) __attribute__ ((weak));

/* Most primitives that a thread keeps. Attention needs five for every number of keys that a run of
 * queries is multiplied with. */
#define MOST_KEPT 1024

typedef enum
{
  TO_FP32,
  TO_BF16,
  ADDS_TO_FP32
} Result;

/* The key by which a GEMM primitive is cached: sizes, leading dimensions (elements from row to
 * row), layout and Result. */
typedef struct
{
  gint64 m, n, k, lda, ldb, ldc, layout, result;
} Key;

typedef struct
{
  Key key;
  dnnl_primitive_t run;
  dnnl_memory_t a, b, out;
} Primitive;

/* What one thread keeps. */
typedef struct
{
  dnnl_stream_t stream;
  GHashTable *primitives; /* Primitive, keyed by its first member */
} Context;

/* Ends the program when oneDNN refuses a call: it refuses nothing that this file passes, unless
 * memory has run out. */
static void
need (dnnl_status_t status, const char *call)
{
  if (status != dnnl_success)
    g_error ("oneDNN: %s: %s", call,
             status == dnnl_out_of_memory ? "out of memory" : "was refused");
}

#define NEED(call) need ((call), #call)

static dnnl_engine_t
engine (void)
{
  static dnnl_engine_t made;
  static gsize ready = 0;

  if (g_once_init_enter (&ready))
    {
      NEED (dnnl_engine_create (&made, dnnl_cpu, 0));
      g_once_init_leave (&ready, 1);
    }
  return made;
}

gboolean
exec_gemm_bf16_is_available (void)
{
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa ();

  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16
         && (dnnl_version ()->cpu_runtime == DNNL_RUNTIME_SEQ || omp_set_num_threads != NULL);
}

const char *
exec_gemm_bf16_name (void)
{
  static char name[64];
  const dnnl_version_t *version = dnnl_version ();

  g_snprintf (name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return exec_gemm_bf16_is_available () ? name : NULL;
}

static void
free_primitive (gpointer data)
{
  Primitive *self = data;

  dnnl_primitive_destroy (self->run);
  dnnl_memory_destroy (self->a);
  dnnl_memory_destroy (self->b);
  dnnl_memory_destroy (self->out);
  g_free (self);
}

static void
free_context (gpointer data)
{
  Context *self = data;

  g_hash_table_unref (self->primitives);
  dnnl_stream_destroy (self->stream);
  g_free (self);
}

static guint
hash_key (gconstpointer data)
{
  const gint64 *word = data;
  guint64 hash = 0;

  for (guint i = 0; i < sizeof (Key) / sizeof *word; i++)
    hash = (hash ^ (guint64)word[i]) * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  return (guint)(hash >> 32);
}

static gboolean
equal_keys (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (Key)) == 0;
}

/* The context of the calling thread. oneDNN gets one OpenMP thread, because the pool divides
 * products among its own. */
static Context *
context (void)
{
  static GPrivate of_thread = G_PRIVATE_INIT (free_context);
  Context *self = g_private_get (&of_thread);

  if (self == NULL)
    {
      self = g_new0 (Context, 1);
      if (omp_set_num_threads != NULL)
        omp_set_num_threads (1);
      NEED (dnnl_stream_create (&self->stream, engine (), dnnl_stream_default_flags));
      self->primitives = g_hash_table_new_full (hash_key, equal_keys, NULL, free_primitive);
      g_private_set (&of_thread, self);
    }
  return self;
}

#if DNNL_VERSION_MAJOR \
    < 3 /* oneDNN 2: memory descriptors are values, and GEMMs have a descriptor, too */
typedef dnnl_memory_desc_t Desc;

static Desc
describe (gint64 rows, gint64 cols, gint64 row_stride, gint64 col_stride, dnnl_data_type_t type)
{
  Desc made;

  NEED (dnnl_memory_desc_init_by_strides (&made, 2, (dnnl_dims_t){ rows, cols }, type,
                                          (dnnl_dims_t){ row_stride, col_stride }));
  return made;
}

static dnnl_memory_t
memory_of (const Desc *desc)
{
  dnnl_memory_t made;

  NEED (dnnl_memory_create (&made, desc, engine (), DNNL_MEMORY_NONE));
  return made;
}

static dnnl_primitive_desc_t
describe_gemm (const Desc *a, const Desc *b, const Desc *out, const_dnnl_primitive_attr_t attr)
{
  dnnl_matmul_desc_t gemm;
  dnnl_primitive_desc_t made;

  NEED (dnnl_matmul_desc_init (&gemm, a, b, NULL, out));
  NEED (dnnl_primitive_desc_create (&made, &gemm, attr, engine (), NULL));
  return made;
}

static void
forget (Desc *desc)
{
  (void)desc;
}
#else
typedef dnnl_memory_desc_t Desc;

static Desc
describe (gint64 rows, gint64 cols, gint64 row_stride, gint64 col_stride, dnnl_data_type_t type)
{
  Desc made;

  NEED (dnnl_memory_desc_create_with_strides (&made, 2, (dnnl_dims_t){ rows, cols }, type,
                                              (dnnl_dims_t){ row_stride, col_stride }));
  return made;
}

static dnnl_memory_t
memory_of (const Desc *desc)
{
  dnnl_memory_t made;

  NEED (dnnl_memory_create (&made, *desc, engine (), DNNL_MEMORY_NONE));
  return made;
}

static dnnl_primitive_desc_t
describe_gemm (const Desc *a, const Desc *b, const Desc *out, const_dnnl_primitive_attr_t attr)
{
  dnnl_primitive_desc_t made;

  NEED (dnnl_matmul_primitive_desc_create (&made, engine (), *a, *b, NULL, *out, attr));
  return made;
}

static void
forget (Desc *desc)
{
  dnnl_memory_desc_destroy (*desc);
}
#endif

static dnnl_primitive_attr_t
attributes (Result result)
{
  dnnl_primitive_attr_t made;
  dnnl_post_ops_t after;

  NEED (dnnl_primitive_attr_create (&made));
  if (result == ADDS_TO_FP32)
    {
      NEED (dnnl_post_ops_create (&after));
      NEED (dnnl_post_ops_append_sum (after, 1.0f
#if DNNL_VERSION_MAJOR >= 3
                                      ,
                                      0, dnnl_f32
#endif
                                      ));
      NEED (dnnl_primitive_attr_set_post_ops (made, after));
      dnnl_post_ops_destroy (after);
    }
  return made;
}

static Primitive *
make (const Key *key)
{
  Primitive *self = g_new0 (Primitive, 1);
  const gboolean transposes_a = key->layout == 2, transposes_b = key->layout == 1;
  Desc a = describe (key->m, key->k, transposes_a ? 1 : key->lda, transposes_a ? key->lda : 1,
                     dnnl_bf16);
  Desc b = describe (key->k, key->n, transposes_b ? 1 : key->ldb, transposes_b ? key->ldb : 1,
                     dnnl_bf16);
  Desc out = describe (key->m, key->n, key->ldc, 1, key->result == TO_BF16 ? dnnl_bf16 : dnnl_f32);
  dnnl_primitive_attr_t attr = attributes ((Result)key->result);
  dnnl_primitive_desc_t desc = describe_gemm (&a, &b, &out, attr);

  self->key = *key;
  NEED (dnnl_primitive_create (&self->run, desc));
  self->a = memory_of (&a);
  self->b = memory_of (&b);
  self->out = memory_of (&out);
  dnnl_primitive_desc_destroy (desc);
  dnnl_primitive_attr_destroy (attr);
  forget (&a);
  forget (&b);
  forget (&out);
  return self;
}

static void
run (const Key *key, const guint16 *a, const guint16 *b, void *out)
{
  Context *self = context ();
  Primitive *made = g_hash_table_lookup (self->primitives, key);

  if (made == NULL)
    {
      if (g_hash_table_size (self->primitives) >= MOST_KEPT)
        g_hash_table_remove_all (self->primitives);
      made = make (key);
      g_hash_table_add (self->primitives, made);
    }
  NEED (dnnl_memory_set_data_handle (made->a, (void *)a));
  NEED (dnnl_memory_set_data_handle (made->b, (void *)b));
  NEED (dnnl_memory_set_data_handle (made->out, out));
  NEED (dnnl_primitive_execute (made->run, self->stream, 3,
                                (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, made->a },
                                                     { DNNL_ARG_WEIGHTS, made->b },
                                                     { DNNL_ARG_DST, made->out } }));
  NEED (dnnl_stream_wait (self->stream));
}

typedef struct
{
  Key whole;
  ExecTiles tiles;
  const guint16 *a, *b;
  float *out;
  guint16 *rounded;
} Product;

static void
multiply_tile (gpointer data, guint64 part, guint worker)
{
  const Product *self = data;
  const ExecTile tile = exec_tiles_at (&self->tiles, part);
  const gint64 at = tile.row * self->whole.n + tile.col;
  Key key = self->whole;

  key.m = tile.rows;
  key.n = tile.cols;
  run (&key, self->a + (key.layout == 2 ? tile.row : tile.row * key.lda),
       self->b + (key.layout == 1 ? tile.col * key.ldb : tile.col),
       self->rounded != NULL ? (void *)(self->rounded + at) : self->out + at);
}

void
exec_gemm_bf16 (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
                gboolean adds, float *out, guint16 *rounded)
{
  Product self = { .whole = { .m = m,
                              .n = n,
                              .k = k,
                              .lda = layout == 2 ? m : k,
                              .ldb = layout == 1 ? k : n,
                              .ldc = n,
                              .layout = layout,
                              .result = rounded != NULL ? TO_BF16
                                        : adds          ? ADDS_TO_FP32
                                                        : TO_FP32 },
                   .tiles = exec_tiles_of (m, n),
                   .a = a,
                   .b = b,
                   .out = out,
                   .rounded = rounded };

  exec_pool_run (self.tiles.n, G_MAXUINT, multiply_tile, &self);
}
