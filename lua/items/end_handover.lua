#!lua flags=allow-oom
-- Tell how hand-overs have turned out: an item that has arrived at its other node (`arrived`) is forgotten here; one that was
-- refused there is surely not there, so that it may be brought elsewhere. Answers how many are on their way still.
-- ARGV: now revision number | position arrived
-- RETURNS: ok stale gone deleted | ok
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local line = redis.call('HGET', key.handovers, row.position)
  if line and row.arrived == '1' then
    redis.call('HDEL', key.handovers, row.position)
    redis.call('ZREM', key.handovers_told, row.position)
    local entry = log_entries.current(row.position)
    if entry then items.erase(row.position, entry.log_id, '') end
  elseif line then
    local attempts, jid, _, reason = handover_record.read(line)
    redis.call('HSET', key.handovers, row.position, handover_record.write(attempts, jid, '', reason))
  end
  return {'ok', redis.call('HLEN', key.handovers)}
end)
write_buffer.flush()
return {'ok', results, {}, {}, {}, 0, 0, call.partition_token}
