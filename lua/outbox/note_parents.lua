#!lua flags=allow-oom
-- Note what became of the parents of items: `awaited` with its partition and token, how it has ended, or `unknown`. Hand out items whose
-- last parent has ended.
-- ARGV: now revision frontend number retry | position index state partition token reason result
-- RETURNS: ok stale gone deleted | ok item-not-found unknown
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local answer = parents.note(row)
  write_buffer.flush()
  return {answer}
end)
return respond.make(results, call.parents_released)
