#!lua flags=allow-oom
-- Drop waiting items, or all entries of a log, a bounded part per call; locked items stay (P25).
-- ARGV: now revision frontend number
-- RETURNS: ok(count) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local CHUNK = 300
local dropped = ready_queue.take(CHUNK)
if call.partition_options.log_only then
  local after, ended = '-', false
  while #dropped < CHUNK and not (ended or budget.over()) do
    local found
    found, ended = log_entries.range(after, '+', CHUNK - #dropped)
    for _, entry in ipairs(found) do
      entry.position, after = entry.log_id, '(' .. entry.log_id
      dropped[#dropped + 1] = entry
    end
  end
  -- All up to the last of them is gone, as what was trimmed.
  local last = dropped[#dropped]
  if last and positions.after(last.log_id, call.partition_trim) then partition.move_trim(last.log_id) end
end
local left = CHUNK - #dropped
-- ZRANGE with an end of -1 would return all.
for _, places in ipairs({left > 0 and redis.call('ZRANGE', key.delayed, 0, left - 1) or {}, blocked_items.all(left), dependents.some(left)}) do
  for _, position in ipairs(places) do
    local entry = #dropped < CHUNK and not budget.over() and log_entries.current(position)
    if entry then
      entry.position = position
      dropped[#dropped + 1] = entry
    end
  end
end
for _, entry in ipairs(dropped) do
  items.drop(entry.position, entry)
  group_order.remove(entry.position)
  outcomes.note_end(entry.position, items.name(entry.position, entry), 'cancelled', 'purged', '')
end
write_buffer.flush()
partition.save()
local more = #dropped == CHUNK or budget.over() or call.fair_intake_behind or call.budget_skipped >= budget.SKIPS
if call.expiry_perished > 0 then notices.tell({'perished', call.expiry_perished}) end
return respond.results({#dropped}, next_due.time(), more and 1 or 0)
