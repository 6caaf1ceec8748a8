/* ALiBi: scores of attention fall with the distance of query and key, by a slope for each head.
 *
 * arxiv.org/abs/2108.12409, as transformers' modeling_bloom.py and modeling_mpt.py have it: of a
 * power of two the slopes are 2^(-8 i / heads); other numbers of heads take those of the power
 * below, then every other one of the power above. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

double plan_alibi_slope (gint64 head, gint64 heads);

G_END_DECLS
