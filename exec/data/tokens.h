/* ExecTokens: a source of tokens: a plain file of 16-bit or 32-bit little-endian numbers, as
 * scripts of tokenizers write it, or a Megatron-LM data set (PREFIX.bin and PREFIX.idx), whose
 * documents follow one another. It is cut into sequences from its first token on; after the last
 * whole one the first comes again. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecTokens ExecTokens;

/* Opens a data set, given by its prefix, its .idx, or its .bin with the .idx beside it; else a
 * plain file, of 32-bit tokens where the path ends in .u32 or the vocabulary does not fit 16 bits
 * (unless it ends in .u16). */
ExecTokens *exec_tokens_open (const char *path, gint64 vocab, gint64 seq, GError **error);
void exec_tokens_free (ExecTokens *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecTokens, exec_tokens_free)

guint64 exec_tokens_sequences (const ExecTokens *self);

/* The path of the file with the tokens. */
const char *exec_tokens_path (const ExecTokens *self);

/* A text that identifies the file's content, wherever it lies; the caller frees. */
char *exec_tokens_describe (const ExecTokens *self);

/* Makes this token end documents, also where an index says otherwise. */
void exec_tokens_set_end (ExecTokens *self, gint64 token);

/* Whether it is known where documents end. */
gboolean exec_tokens_has_documents (const ExecTokens *self);

/* The documents of an indexed data set in a shuffled order, which depends on seed, source and
 * epoch. Reference-counted; any thread may read it. exec_order_new returns NULL where no index says
 * where documents begin. */
typedef struct _ExecOrder ExecOrder;
ExecOrder *exec_order_new (const ExecTokens *self, guint64 seed, guint64 source, guint64 epoch);
ExecOrder *exec_order_ref (ExecOrder *self);
void exec_order_unref (ExecOrder *self);
guint64 exec_order_epoch (const ExecOrder *self);

/* The place of each token of the sequence at token `first` in its document. Only the part of a
 * document inside the sequence counts, and each sequence of an index is a document, as in
 * Megatron-LM's GPTDataset. */
void exec_tokens_places (const ExecTokens *self, const ExecOrder *order, guint64 first,
                         gint32 *out_places);

/* The mean length of documents: for every token of all sequences, the length of the part of its
 * document that its sequence holds, averaged. 0 where there is no index. */
double exec_tokens_mean_document (const ExecTokens *self);

/* Reads the sequence at token `first`, in the file's order or another; out_targets gets the token
 * that follows each of its tokens. INVALID when a token is outside the vocabulary. */
gboolean exec_tokens_read (const ExecTokens *self, const ExecOrder *order, guint64 first,
                           gint32 *out_tokens, gint32 *out_targets, GError **error);

G_END_DECLS
