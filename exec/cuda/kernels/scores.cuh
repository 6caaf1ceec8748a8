/* Attention's scores and weights: exec/cpu/attend.c, for devices. */
#pragma once
#include "exec/cuda/kernels/random.cuh"
#include "exec/cuda/kernels/scores.h"

namespace
{

/* The properties of scores and weights that belong to one head of one sequence. */
struct HeadRule
{
  const int32_t *places; /* of the sequence's tokens */
  uint64_t token;        /* number of the sequence's first token in the run */
  ExecDropout dropout;
  float slope; /* by how much scores fall with each token of distance */
};

/* planner/model/alibi.c */
__device__ inline float
alibi_slope (const ExecCudaScores &scores, uint64_t head)
{
  double power = scores.slopes, number = (double)(scores.first_head + head);

  if (scores.slopes == 0)
    return 0;
  return (float)(number < power ? exp2 (-8 * (number + 1) / power)
                                : exp2 (-4 * (2 * (number - power) + 1) / power));
}

/* `seq`: tokens of a sequence here; `head`: counted among the heads here. */
__device__ inline HeadRule
head_rule (const ExecCudaScores &scores, uint64_t seq, uint64_t sequence, uint64_t head)
{
  HeadRule rule = { scores.places, 0, scores.dropout, alibi_slope (scores, head) };

  if (rule.places != NULL)
    rule.places += sequence * seq;
  if (rule.dropout.key != NULL)
    rule.token = (uint64_t)*scores.start + sequence * scores.whole;
  rule.dropout.site += (uint32_t)head;
  return rule;
}

/* The first key of the document that the query is in. A document may have begun before the
 * sequence: where chunks are taken for sequences. */
__device__ inline uint64_t
document_of (const HeadRule &rule, uint64_t query)
{
  return rule.places != NULL ? query - at_most (query, (uint64_t)rule.places[query]) : 0;
}

/* The score that the softmax takes for the product of a query with a key `distance` before it. */
__device__ inline float
bend (const ExecCudaScores &scores, const HeadRule &rule, float product, uint64_t distance)
{
  float score = product * scores.scale;

  if (scores.cap > 0)
    score = scores.cap * tanhf (score / scores.cap);
  return rule.slope > 0 ? score - rule.slope * (float)distance : score;
}

/* The derivative of a score by the scaled product: that of the bound. */
__device__ inline float
bend_derivative (const ExecCudaScores &scores, float product)
{
  if (!(scores.cap > 0))
    return 1;
  float share = tanhf (product * scores.scale / scores.cap);
  return 1 - share * share;
}

/* What dropout multiplies the weight of a pair by; places are those in the whole sequence. */
__device__ inline float
weight_factor (const HeadRule &rule, uint64_t query, uint64_t key)
{
  uint64_t token = rule.token + query, column = rule.token + key;

  if (rule.dropout.key == NULL)
    return 1;
  Numbers numbers = random_block (rule.dropout.key, (uint32_t)(column / PER_BLOCK), (uint32_t)token,
                                  (uint32_t)(token >> 32), rule.dropout.site);
  return number_at (numbers, column) < rule.dropout.limit ? 0 : rule.dropout.scale;
}

}
