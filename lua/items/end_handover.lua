#!lua flags=allow-oom
-- End hand-overs. An item that `arrived` at the other node is erased here; one that was refused there may be handed over to another node.
-- Returns how many are still on their way.
-- ARGV: now revision number | position arrived
-- RETURNS: ok stale gone deleted | ok
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local line = redis.call('HGET', key.handovers, row.position)
  if line and row.arrived == '1' then
    redis.call('HDEL', key.handovers, row.position)
    redis.call('HDEL', key.history, row.position)
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
return respond.results(results)
