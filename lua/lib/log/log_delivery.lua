-- Delivers entries of the log to readers with room, in order, and consumes nothing. Every operation that can append entries or make room
-- runs it.
-- CALL: ranges, made = 0, bytes = 0
-- Bounded by count and by bytes, as `dispatch` is, for the same reasons.
local log_delivery = {LIMIT = 200, ROUND = 20, BYTES = 1048576, COST = 0.2}

-- Returns up to `LIMIT` readers that lag. Past the 1,023rd entry of one millisecond positions share a score, so readers at the end of the
-- log may stand before others.
local function lagging()
  local _, seq = positions.split(call.partition_tail)
  local most = (seq < 1023 and '(' or '') .. string.format('%.0f', positions.place(call.partition_tail))
  local found, first, some = {}, 0, nil
  repeat
    some = redis.call('ZRANGEBYSCORE', key.readers_ready, '-inf', most, 'LIMIT', first, log_delivery.LIMIT)
    for _, subid in ipairs(some) do
      local reader = log_readers.get(subid)
      if reader.position ~= call.partition_tail and #found < log_delivery.LIMIT then found[#found + 1] = reader end
    end
    first = first + #some
    budget.spend(log_delivery.COST * #some)
  until #found == log_delivery.LIMIT or #some < log_delivery.LIMIT or budget.over()
  return found
end

-- Returns entries after a position; many readers are at the same one.
local function range(position, count)
  local name = position .. ' ' .. count
  call.log_delivery_ranges = call.log_delivery_ranges or {}
  call.log_delivery_ranges[name] = call.log_delivery_ranges[name] or (log_entries.range('(' .. position, '+', count))
  return call.log_delivery_ranges[name]
end

-- The stage `gap` says that entries between the reader's position and this one were removed. The last removed one may be a later one that
-- its publisher has deleted; what was trimmed of a log is gone.
local function add(deliveries, reader, jid, entry)
  local function between(place)
    return positions.after(place, reader.position) and not positions.after(place, entry.log_id)
  end
  local gap = between(call.partition_lost) or call.partition_options.log_only and between(call.partition_trim)
  local stage = gap and 'gap' or 'stream'
  local sequence = partition.next_number()
  local item = entry.item ~= '' and entry.item or positions.item_id(entry.log_id)
  reader_window.hand_out(reader, entry.log_id)
  call.log_delivery_made, call.log_delivery_bytes = call.log_delivery_made + 1, call.log_delivery_bytes + #entry.body
  delivery_row.add(deliveries, jid, entry.log_id, item, 0, 1, 0, entry.by, entry.body, sequence, stage, entry.key, '')
end

-- Delivers up to `share` entries to one reader; returns true when it still lags and has room.
local function serve(reader, share, deliveries)
  local room, jid = reader_window.room(reader)
  local ended = false
  local count = math.min(room, share)
  while count > 0 and call.log_delivery_bytes < log_delivery.BYTES and reader.position ~= call.partition_tail and not ended do
    local found = range(reader.position, math.min(count, log_delivery.ROUND))
    for i = 1, #found do
      if call.log_delivery_bytes >= log_delivery.BYTES then break end
      add(deliveries, reader, jid, found[i])
      count, room = count - 1, room - 1
    end
    ended = #found == 0
  end
  -- Where retention has removed what was left, the position stays, so that the next entry tells the gap.
  if ended and not positions.after(call.partition_lost, reader.position) then reader.position = call.partition_tail end
  local owed = reader.owed[arg.frontend]
  reader.owed[arg.frontend] = {first = owed and owed.first or call.partition_token, sequence = call.partition_token, last = reader.position}
  reader_window.save(reader, ended and call.partition_tail or reader.position)
  return room > 0 and not ended and reader.position ~= call.partition_tail
end

-- Adds to the deliveries; returns 1 when more could be made at once. All lagging readers have an equal share.
function log_delivery.run(deliveries)
  local behind = not call.partition_options.paused and call.caller_sends and lagging() or {}
  local share, more = math.ceil(log_delivery.LIMIT / math.max(#behind, 1)), #behind == log_delivery.LIMIT
  for _, reader in ipairs(behind) do
    if call.log_delivery_made >= log_delivery.LIMIT or call.log_delivery_bytes >= log_delivery.BYTES then return 1 end
    more = serve(reader, share, deliveries) or more
  end
  return more and 1 or 0
end
