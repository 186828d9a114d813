-- Hands entries of the log to readers with room, in order and without consuming them; part of every script that can
-- append entries or make room.
-- CALL: ranges = {}, made = 0, bytes = 0
-- Bounded by count and by bytes, as a dispatch is and for its reasons.
local stream = {LIMIT = 200, ROUND = 20, BYTES = 1048576}

-- Readers that lag: up to `LIMIT` of them. Past the 1,023rd entry of one millisecond places are shared.
local function lagging()
  local _, seq = positions.split(call.partition_tail)
  local place = string.format('%.0f', positions.place(call.partition_tail))
  return redis.call('ZRANGEBYSCORE', key.reading, '-inf', (seq < 1023 and '(' or '') .. place, 'LIMIT', 0, stream.LIMIT)
end

-- Entries after a position; many readers stand at the same one.
local function range(position, count)
  local name = position .. ' ' .. count
  call.stream_ranges[name] = call.stream_ranges[name] or (entries.range('(' .. position, '+', count))
  return call.stream_ranges[name]
end

-- A `gap` before the first: what went with the retention lay after the reader's position.
local function row(reader, jid, entry)
  local stage = positions.after(call.partition_lost, reader.position) and not positions.after(call.partition_lost, entry.log_id)
    and 'gap' or 'stream'
  local sequence = partition.next_number()
  local item = entry.item ~= '' and entry.item or positions.item_id(entry.log_id)
  window.hand(reader, entry.log_id)
  call.stream_made, call.stream_bytes = call.stream_made + 1, call.stream_bytes + #entry.body
  return {jid, entry.log_id, item, 0, 1, 0, entry.by, entry.body, sequence, stage, entry.key}
end

-- Up to `share` entries for one reader; true when it lags and has room even then.
local function serve(reader, share, deliveries)
  local room, jid = window.room(reader)
  local count = math.min(room, share)
  while count > 0 and call.stream_bytes < stream.BYTES and reader.position ~= call.partition_tail do
    local found = range(reader.position, math.min(count, stream.ROUND))
    for i = 1, #found do
      if call.stream_bytes >= stream.BYTES then break end
      deliveries[#deliveries + 1] = row(reader, jid, found[i])
      count, room = count - 1, room - 1
    end
    if #found == 0 then reader.position = call.partition_tail end
  end
  reader.owed[arg.frontend] = call.partition_token
  window.settle(reader)
  return room > 0 and reader.position ~= call.partition_tail
end

-- Adds to the deliveries and gives 1 when more could be made at once. All that lag have an equal share.
function stream.run(deliveries)
  local behind = not call.partition_paused and call.caller_sends and lagging() or {}
  local share, more = math.ceil(stream.LIMIT / math.max(#behind, 1)), #behind == stream.LIMIT
  for _, subid in ipairs(behind) do
    if call.stream_made >= stream.LIMIT or call.stream_bytes >= stream.BYTES then return 1 end
    more = serve(readers.get(subid), share, deliveries) or more
  end
  return more and 1 or 0
end
