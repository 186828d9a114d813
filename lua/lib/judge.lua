-- The decision table of requirements §1.7 (rows 4 to 11; the rows before it need no item and are judged by the frontend).
-- NEEDS:
--- @include writes entries flights history items answers
local judge = {}

-- Looks up what a batch of rows names with one call per key.
function judge.prepare(rows)
  local ids, names, places = {}, {}, {}
  for _, row in ipairs(rows) do
    ids[#ids + 1] = row.item
    if row.request and row.request ~= '' then
      row.name = answers.name(row.sender, row.request, row.item)
      names[#names + 1] = row.name
    end
  end
  local found, known = items.find(ids), answers.find(names)
  for _, position in pairs(found) do places[#places + 1] = position end
  local flying = flights.at(places)
  for _, row in ipairs(rows) do
    row.position = found[row.item]
    row.flight = row.position and flying[row.position]
    if row.flight and row.flight.item ~= row.item then row.position, row.flight = nil, nil end
    row.answered = row.name and known[row.name]
  end
end

local function publisher(row, log_id)
  local entry = entries.get(log_id)
  return entry and entry.by == row.by
end

-- Gives a word: `held`, `waiting` (not locked, and the requester may delete it), `replayed`, or the problem's code.
function judge.verdict(row)
  local flight = row.flight
  local mine = flight and (flight.subid == row.full or flight.subid == row.bare)
  if mine and row.token == flight.token then return 'held' end
  if row.answered then return 'replayed' end
  if not row.position then return 'item-not-found' end
  if mine then return row.token == '' and 'held' or 'lock-lost' end
  if flight then
    if row.owner == '1' or history.knows(history.of(row.position), row.full, row.bare)
      or publisher(row, flight.log_id) then return 'locked-by-another' end
    return 'forbidden'
  end
  row.entry = items.waiting(row.position, row.item)
  if not row.entry then return 'item-not-found' end
  if history.knows(history.of(row.position), row.full, row.bare) then return 'lock-lost' end
  if row.owner == '1' or row.entry.by == row.by then return 'waiting' end
  return 'forbidden'
end

-- Judges each row in order and lets `act(row, verdict)` change things and give the row's reply. A row that names an item
-- of an earlier row sees what that row did.
function judge.each(rows, act)
  local results, met = {}, {}
  judge.prepare(rows)
  for i, row in ipairs(rows) do
    if met[row.item] then
      writes.flush()
      judge.prepare({row})
    end
    met[row.item] = true
    results[i] = act(row, judge.verdict(row))
  end
  return results
end
