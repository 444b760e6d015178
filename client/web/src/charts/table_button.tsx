import { Icon } from '@/ui/icons';

// Every chart is a table too, for whoever reads rather than looks. `drawing`: what the chart is called, "Curve".
export function TableButton({
  title,
  drawing,
  asTable,
  onToggle,
}: {
  title: string;
  drawing: string;
  asTable: boolean;
  onToggle: () => void;
}) {
  return (
    <button type="button" class="button slim quiet" aria-pressed={asTable} onClick={onToggle} title={`${title} as a table`}>
      <Icon name={asTable ? 'evaluate' : 'table'} size={16} />
      <span>{asTable ? drawing : 'Table'}</span>
    </button>
  );
}
