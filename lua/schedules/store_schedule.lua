#!lua
-- Store schedules, each only if its record is still the `expected` one that the caller has read; empty: there is none. A row without a
-- record deletes its schedule, one without an item keeps the stored item. `at` is when the schedule is next due, in ms; empty: never. One
-- that is due stays with who has read it. Returns the time in ms.
-- ARGV: now revision most | id expected record item at
-- RETURNS: ok stale gone deleted | ok(now_ms) changed too-many
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local record = redis.call('HGET', key.schedules, row.id) or ''
  if record ~= row.expected then return {'changed'} end
  if row.record == '' then
    redis.call('HDEL', key.schedules, row.id)
    redis.call('HDEL', key.schedule_items, row.id)
  elseif record == '' and redis.call('HLEN', key.schedules) >= tonumber(arg.most) then
    return {'too-many'}
  else
    redis.call('HSET', key.schedules, row.id, row.record)
    if row.item ~= '' then redis.call('HSET', key.schedule_items, row.id, row.item) end
  end
  local entry = 'schedule/' .. row.id
  if row.at == '' then
    outbox.remove(entry)
  elseif tonumber(row.at) > call.partition_now or outbox.last_attempt(entry) == '0' then
    outbox.put(entry, tonumber(row.at))
  end
  return {'ok', call.partition_now}
end)
return respond.results(results, next_due.time())
