-- The decision table of requirements §1.7 (rows 4 to 11; the rows before it need no item and are judged by the frontend).
local ack_rules = {}

-- Looks up what a batch of rows names with one call per key.
function ack_rules.prepare(rows)
  local ids, placed, places = {}, {}, {}
  for i = 1, #rows do ids[i] = rows[i].item end
  local found = items.positions_of(ids)
  for i = 1, #rows do
    local row, position = rows[i], found[i]
    row.position, row.flight = position, false
    if position then placed[#placed + 1], places[#places + 1] = row, position end
  end
  local flying = inflight.get_many(places)
  for i = 1, #placed do
    local row, flight = placed[i], flying[i]
    -- The service's name for a place is not a second name of an item that its publisher has named.
    if flight and flight.item ~= row.item then row.position, flight = false, false end
    row.flight = flight
  end
end

local function was_holder(row)
  for _, subid in ipairs(attempt_history.of(row.position).holders) do
    if subscription_ids.covers(row.subids, subid) then return true end
  end
  return false
end

-- Gives a word: `held`, `waiting` (not locked, and the requester may delete it), `replayed`, or the problem's code.
function ack_rules.verdict(row)
  local flight = row.flight
  local mine = flight and jids.covers(flight.jid, row.sender)
  -- A lock from before the owner's attach is nobody's any more, whatever frontends or JIDs say (EX11).
  local live = mine and not partition_owner.is_fenced(flight)
  if live and row.token == flight.token then return 'held' end
  row.answered = replay_cache.given(row)
  if row.answered then return 'replayed' end
  if not row.position then return 'item-not-found' end
  if mine then return live and row.token == '' and 'held' or 'lock-lost' end
  if flight then
    if row.owner == '1' or was_holder(row) or jids.published(row.sender, log_entries.get(flight.log_id)) then
      return 'locked-by-another'
    end
    return 'forbidden'
  end
  row.entry = items.waiting(row.position, row.item)
  if not row.entry then return 'item-not-found' end
  if was_holder(row) then return 'lock-lost' end
  if row.owner ~= '1' and not jids.published(row.sender, row.entry) then return 'forbidden' end
  -- A token speaks of a lock: no other right goes with it, or a worker too late would delete what it has lost (RX6).
  if row.token ~= '' then return 'lock-lost' end
  return 'waiting'
end

-- Judges each row in order and lets `act(row, verdict)` change things and give the row's reply. A row that names an item
-- of an earlier row sees what that row did.
function ack_rules.each(rows, act)
  local met = {}
  ack_rules.prepare(rows)
  return budget.each(rows, function(row)
    if met[row.item] then
      write_buffer.flush()
      ack_rules.prepare({row})
    end
    met[row.item] = true
    return act(row, ack_rules.verdict(row))
  end)
end
