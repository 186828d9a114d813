#!lua flags=allow-oom
-- Read hand-overs, up to `max_bytes` of payload, and store in each the destination `note`, unless it has one: the item may have arrived
-- there. Returns `position item publisher payload attempts jid reason key note history` of each.
-- ARGV: now revision number note max_bytes | position
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, bytes = {}, 0
for _, row in ipairs(rows) do
  local line = bytes < tonumber(arg.max_bytes) and redis.call('HGET', key.handovers, row.position)
  local entry = line and log_entries.current(row.position)
  if entry then
    local attempts, jid, note, reason = handover_record.read(line)
    if note == '' then
      note = arg.note
      redis.call('HSET', key.handovers, row.position, handover_record.write(attempts, jid, note, reason))
    end
    bytes = bytes + #entry.body
    found[#found + 1] = {row.position, items.name(row.position, entry), entry.by, entry.body, attempts, jid, reason,
      entry.key, note, attempt_history.lines(row.position)}
  elseif line then
    -- The item is gone: there is nothing to hand over.
    redis.call('HDEL', key.handovers, row.position)
    redis.call('HDEL', key.history, row.position)
    redis.call('ZREM', key.handovers_told, row.position)
  end
end
return respond.results(found)
