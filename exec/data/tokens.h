/* ExecTokens: a file of token numbers, 16 or 32 bits each, little-endian and nothing else, which is
 * what tokenizers' scripts write, or one of Megatron-LM's data sets (PREFIX.bin and PREFIX.idx),
 * whose documents follow one another. Behind the last whole sequence, of those from the first token
 * on, the first comes again. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecTokens ExecTokens;

/* A data set by its prefix, its .idx, or its .bin with the .idx beside it. Else a plain file, of 32
 * bits where the path ends in .u32 or the vocabulary does not fit 16 (unless it ends in .u16). */
ExecTokens *exec_tokens_open (const char *path, gint64 vocab, gint64 seq, GError **error);
void exec_tokens_free (ExecTokens *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecTokens, exec_tokens_free)

guint64 exec_tokens_sequences (const ExecTokens *self);

/* The file that has the tokens. */
const char *exec_tokens_path (const ExecTokens *self);

/* What tells the file from others, wherever it lies; the caller frees. */
char *exec_tokens_describe (const ExecTokens *self);

/* Documents end with this token, where no index says where they end, or another place. */
void exec_tokens_set_end (ExecTokens *self, gint64 token);

/* Whether it is known where documents end. */
gboolean exec_tokens_has_documents (const ExecTokens *self);

/* The text of an index's documents in the order of an epoch, another for each seed, source and
 * epoch: in the place of the file's. Counted references; any thread may read it. NULL where no
 * index says where documents begin. */
typedef struct _ExecOrder ExecOrder;
ExecOrder *exec_order_new (const ExecTokens *self, guint64 seed, guint64 source, guint64 epoch);
ExecOrder *exec_order_ref (ExecOrder *self);
void exec_order_unref (ExecOrder *self);
guint64 exec_order_epoch (const ExecOrder *self);

/* Of a sequence from a token on, the place of each token in its document, of which only what is in
 * this sequence counts: as Megatron-LM's GPTDataset does, for which what an index calls a sequence
 * is a document. */
void exec_tokens_places (const ExecTokens *self, const ExecOrder *order, guint64 first,
                         gint32 *out_places);

/* Tokens of the document that a token is in, in the mean over the tokens of all sequences in their
 * order, which cut documents; 0 where no index says it. */
double exec_tokens_document (const ExecTokens *self);

/* A sequence from a token on, of the file or in an order, and next tokens; INVALID when one is
 * outside the vocabulary. */
gboolean exec_tokens_read (const ExecTokens *self, const ExecOrder *order, guint64 first,
                           gint32 *out_tokens, gint32 *out_targets, GError **error);

G_END_DECLS
