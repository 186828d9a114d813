#!lua flags=no-writes
-- Return the time in ms, and schedules as `id record item`: those named; or from number `due` on those that are due, as many as the limits allow;
-- or else a page by id after `after`, without items.
-- ARGV: now revision due after limit max_bytes | id
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local ids, limit, room = {}, tonumber(arg.limit), tonumber(arg.max_bytes)
if arg.due ~= '' then
  ids = redis.call('ZRANGEBYSCORE', key.schedule_times, '-inf', call.partition_now, 'LIMIT', tonumber(arg.due), limit)
elseif #rows > 0 then
  for i, row in ipairs(rows) do ids[i] = row.id end
else
  for _, id in ipairs(redis.call('HKEYS', key.schedules)) do
    if id > arg.after then ids[#ids + 1] = id end
  end
  table.sort(ids)
  room = 0
end
local found = {call.partition_now}
for i = 1, math.min(#ids, limit) do
  local record = redis.call('HGET', key.schedules, ids[i])
  local item = record and room > 0 and redis.call('HGET', key.schedule_items, ids[i]) or ''
  room = room - #item
  if record then found[#found + 1] = {ids[i], record, item} end
  if room <= 0 and item ~= '' then break end
end
return respond.results(found)
