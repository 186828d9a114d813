#!lua flags=no-writes
-- Return the time in ms, and schedules as `id record item`: those named, or else a page by id after `after`, without items.
-- ARGV: now revision after limit | id
-- RETURNS: ok(now_ms *schedules(id record item)) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local ids, found = {}, {call.partition_now}
if #rows > 0 then
  for i, row in ipairs(rows) do ids[i] = row.id end
else
  for _, id in ipairs(redis.call('HKEYS', key.schedules)) do
    if id > arg.after then ids[#ids + 1] = id end
  end
  table.sort(ids)
end
for i = 1, math.min(#ids, tonumber(arg.limit)) do
  local record = redis.call('HGET', key.schedules, ids[i])
  local item = record and #rows > 0 and redis.call('HGET', key.schedule_items, ids[i]) or ''
  if record then found[#found + 1] = {ids[i], record, item} end
end
return respond.results(found)
